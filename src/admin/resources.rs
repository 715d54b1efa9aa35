//! `/agents/{agent}/resources`, and `touch`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::definition::{ResourceInput, ResourceView};
use super::extract::{Condition, Params, Segment, json};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Admin, Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::uri::ResourceUri;

/// The size of the definition and of the JSON around the contents.
pub(super) const AROUND_CONTENTS: usize = 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// One resource with its contents.
    uri: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UriParam {
    /// The URI of the resource.
    uri: String,
}

/// A page, or one definition.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum ListedOrRead {
    Listed(Items<ResourceView>),
    Read(ResourceView),
}

impl UriParam {
    pub(super) fn check(&self) -> Result<ResourceUri, Fault> {
        ResourceUri::parse(&self.uri).map_err(|error| Fault::invalid_params(format!("uri {error}")))
    }
}

/// Lists resources, or reads one.
///
/// With `uri` one resource with its contents, without it a page of definitions.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/resources",
    operation_id = "readResources",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), ListParams),
    responses((status = 200, description = "Without `uri` a page of definitions; with it that resource with its contents, in the format of `PUT`", body = inline(ListedOrRead), headers(("ETag" = String, description = "With `uri`, the revision that last changed it"))), Problems)
)]
pub(super) async fn list_or_read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<ListParams>,
) -> Answer<Response> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    match params.uri {
        Some(_) if params.limit.is_some() || params.cursor.is_some() => {
            Err(Fault::invalid_params("query: uri cannot be combined with limit or cursor").into())
        }
        Some(uri) => Ok(read(&app, &agent, UriParam { uri }).await?.into_response()),
        None => {
            let page = PageParams::new(params.limit, params.cursor);
            Ok(list(&app, &agent, &page).await?.into_response())
        }
    }
}

async fn read(app: &Admin, agent: &Agent, param: UriParam) -> Result<impl IntoResponse + use<>, Fault> {
    let full = app.catalog.resource(agent, &param.check()?).await?;
    let tag = etag(full.resource.revision);
    Ok(([(ETAG, tag)], Json(ListedOrRead::Read(ResourceView::whole(full.resource, &full.bytes)))))
}

async fn list(app: &Admin, agent: &Agent, params: &PageParams) -> Result<impl IntoResponse + use<>, Fault> {
    let page = params.open(&app.seal, "resources", agent.uid.0)?;
    let resources = app.catalog.resources(agent, &page.after, page.read()).await?;
    let items = page.items(resources, |resource| resource.uri.to_string(), ResourceView::listed);
    Ok(Json(ListedOrRead::Listed(items)))
}

/// Adds or replaces a resource.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/resources",
    operation_id = "putResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    request_body = ResourceInput,
    responses((status = 200, description = "Replaced, or unchanged", headers(("ETag" = String, description = "The revision that last changed it"))), (status = 201, description = "Added", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let uri = param.check()?;
    // Every character of text may be escaped; base64 has four bytes for three.
    let input: ResourceInput = json(request, app.content_bytes * 2 + AROUND_CONTENTS).await?;
    let new = input.check(uri, app.content_bytes)?;
    let (status, audited) = authority.answers_put();
    let written = app.catalog.put_resource(&agent, new, condition, audited).await?;
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Removes a resource.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/resources",
    operation_id = "deleteResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    responses((status = 204, description = "Removed", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let revision = app.catalog.delete_resource(&agent, param.check()?, condition, audited).await?;
    Ok((status, [(ETAG, etag(revision))]))
}

/// Notifies the subscribers of a resource, without new content.
#[utoipa::path(
    post,
    path = "/admin/v1/agents/{agent}/resources/touch",
    operation_id = "touchResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    responses((status = 202, description = "Subscribers are notified", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn touch(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::ACCEPTED);
    let written = app.catalog.touch_resource(&agent, param.check()?, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}
