//! `/agents/{agent}/templates`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use uri_template::UriTemplate;
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::definition::{TemplateInput, TemplateView};
use super::extract::{Condition, Params, Segment, json};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Admin, Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::Agent;
use crate::model::fault::Fault;

/// The body limit of a template: every member at its maximum length, every character escaped.
const MOST_BYTES: usize = 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    /// One template with its body.
    uri_template: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// A page, or one definition.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum ListedOrRead {
    Listed(Items<TemplateView>),
    Read(TemplateView),
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TemplateParam {
    /// The URI template.
    uri_template: String,
}

impl TemplateParam {
    fn check(&self) -> Result<UriTemplate, Fault> {
        let parsed = UriTemplate::parse(&self.uri_template);
        parsed.map_err(|error| Fault::invalid_params(format!("uriTemplate {error}")))
    }
}

/// Lists resource templates, or reads one.
///
/// With `uriTemplate` one template with its body, without it a page of definitions.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "readTemplates",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), ListParams),
    responses((status = 200, description = "Without `uriTemplate` a page of definitions; with it that template with its body, in the format of `PUT`", body = inline(ListedOrRead), headers(("ETag" = String, description = "With `uriTemplate`, the revision that last changed it"))), Problems)
)]
pub(super) async fn list_or_read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<ListParams>,
) -> Answer<Response> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    match params.uri_template {
        Some(_) if params.limit.is_some() || params.cursor.is_some() => {
            let both = "query: uriTemplate cannot be combined with limit or cursor";
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
    let full = app.catalog.template(agent, &param.check()?).await?;
    let tag = etag(full.template.revision);
    Ok(([(ETAG, tag)], Json(ListedOrRead::Read(TemplateView::whole(full.template, &full.body)))))
}

async fn list(app: &Admin, agent: &Agent, params: &PageParams) -> Result<impl IntoResponse + use<>, Fault> {
    let page = params.open(&app.seal, "templates", agent.uid.0)?;
    let templates = app.catalog.templates(agent, &page.after, page.read()).await?;
    let items = page.items(templates, |template| template.uri_template.to_string(), TemplateView::listed);
    Ok(Json(ListedOrRead::Listed(items)))
}

/// Adds or replaces a resource template.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "putTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    request_body = TemplateInput,
    responses((status = 200, description = "Replaced, or unchanged", headers(("ETag" = String, description = "The revision that last changed it"))), (status = 201, description = "Added", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let uri_template = param.check()?;
    let input: TemplateInput = json(request, MOST_BYTES).await?;
    let new = input.check(uri_template)?;
    let (status, audited) = authority.answers_put();
    let written = app.catalog.put_template(&agent, new, condition, audited).await?;
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Removes a resource template.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "deleteTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    responses((status = 204, description = "Removed", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let revision = app.catalog.delete_template(&agent, param.check()?, condition, audited).await?;
    Ok((status, [(ETAG, etag(revision))]))
}
