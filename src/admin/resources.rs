//! `/agents/{agent}/resources`, and `touch`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::ETAG;
use serde::Deserialize;

use super::authority::Authority;
use super::definition::{ResourceInput, ResourceShown};
use super::extract::{Condition, Params, Segment, json};
use super::page::PageParams;
use super::{Admin, Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::uri::ResourceUri;

/// JSON around the contents, and the definition beside them.
pub(super) const AROUND_CONTENTS: usize = 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    uri: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UriParam {
    uri: String,
}

impl UriParam {
    pub(super) fn check(&self) -> Result<ResourceUri, Fault> {
        ResourceUri::parse(&self.uri).map_err(|error| Fault::invalid_params(format!("uri {error}")))
    }
}

/// With `?uri=` one resource, without a page of definitions.
pub(super) async fn list_or_read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<ListParams>,
) -> Answer<Response> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    match params.uri {
        Some(_) if params.limit.is_some() || params.cursor.is_some() => {
            Err(Fault::invalid_params("query: uri names one resource, limit and cursor a page of all").into())
        }
        Some(uri) => Ok(read(&app, &agent, UriParam { uri }).await?.into_response()),
        None => {
            let page = PageParams::new(params.limit, params.cursor);
            Ok(list(&app, &agent, &page).await?.into_response())
        }
    }
}

async fn read(app: &Admin, agent: &Agent, param: UriParam) -> Result<impl IntoResponse + use<>, Fault> {
    let full = app.registry.resource(agent, &param.check()?).await?;
    let tag = etag(full.resource.revision);
    Ok(([(ETAG, tag)], Json(ResourceShown::whole(full.resource, &full.bytes))))
}

async fn list(app: &Admin, agent: &Agent, params: &PageParams) -> Result<impl IntoResponse + use<>, Fault> {
    let page = params.open(&app.seal, "resources", agent.uid.0)?;
    let resources = app.registry.resources(agent, &page.after, page.read()).await?;
    Ok(page.answer(resources, |resource| resource.uri.to_string(), ResourceShown::listed))
}

pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    let uri = param.check()?;
    // Text may come with every character escaped, base64 takes four bytes for three.
    let input: ResourceInput = json(request, app.content_bytes * 2 + AROUND_CONTENTS).await?;
    let new = input.check(uri, app.content_bytes)?;
    let written = app.registry.put_resource(&agent, new, condition).await?;
    Ok((created(written.created), [(ETAG, etag(written.revision))]))
}

pub(super) fn created(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    let revision = app.registry.delete_resource(&agent, param.check()?, condition).await?;
    Ok((StatusCode::NO_CONTENT, [(ETAG, etag(revision))]))
}

pub(super) async fn touch(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    let written = app.registry.touch_resource(&agent, param.check()?, condition).await?;
    Ok((StatusCode::ACCEPTED, [(ETAG, etag(written.revision))]))
}
