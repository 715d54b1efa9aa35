//! `/agents/{agent}/templates`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::ETAG;
use serde::Deserialize;

use super::authority::Authority;
use super::definition::{TemplateInput, TemplateShown};
use super::extract::{Condition, Params, Segment, json};
use super::page::PageParams;
use super::resources::created;
use super::{Admin, Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::uri_template::UriTemplate;

/// Most bytes of the JSON of one template: every member as long as it may be, every character escaped.
const MOST_BYTES: usize = 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    uri_template: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TemplateParam {
    uri_template: String,
}

impl TemplateParam {
    fn check(&self) -> Result<UriTemplate, Fault> {
        let parsed = UriTemplate::parse(&self.uri_template);
        parsed.map_err(|error| Fault::invalid_params(format!("uriTemplate {error}")))
    }
}

/// With `?uriTemplate=` one template, without a page of definitions.
pub(super) async fn list_or_read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<ListParams>,
) -> Answer<Response> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    match params.uri_template {
        Some(_) if params.limit.is_some() || params.cursor.is_some() => {
            let both = "query: uriTemplate names one template, limit and cursor a page of all";
            Err(Fault::invalid_params(both).into())
        }
        Some(uri_template) => Ok(read(&app, &agent, TemplateParam { uri_template }).await?.into_response()),
        None => {
            let page = PageParams::new(params.limit, params.cursor);
            Ok(list(&app, &agent, &page).await?.into_response())
        }
    }
}

async fn read(app: &Admin, agent: &Agent, param: TemplateParam) -> Result<impl IntoResponse + use<>, Fault> {
    let full = app.registry.template(agent, &param.check()?).await?;
    let tag = etag(full.template.revision);
    Ok(([(ETAG, tag)], Json(TemplateShown::whole(full.template, &full.body))))
}

async fn list(app: &Admin, agent: &Agent, params: &PageParams) -> Result<impl IntoResponse + use<>, Fault> {
    let page = params.open(&app.seal, "templates", agent.uid.0)?;
    let templates = app.registry.templates(agent, &page.after, page.read()).await?;
    Ok(page.answer(templates, |template| template.uri_template.to_string(), TemplateShown::listed))
}

pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    let uri_template = param.check()?;
    let input: TemplateInput = json(request, MOST_BYTES).await?;
    let new = input.check(uri_template)?;
    let written = app.registry.put_template(&agent, new, condition).await?;
    Ok((created(written.created), [(ETAG, etag(written.revision))]))
}

pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.registry_of(&app.registry, &slug).await?;
    let revision = app.registry.delete_template(&agent, param.check()?, condition).await?;
    Ok((StatusCode::NO_CONTENT, [(ETAG, etag(revision))]))
}
