//! `/agents/{agent}/templates`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::definition::{TemplateInput, TemplateView};
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, Segment};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::model::template::ResourceTemplate;

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

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TemplateParam {
    /// The URI template.
    uri_template: String,
}

/// A page, or one definition.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answer of `CatalogCall::list_or_read`")]
enum ListedOrRead {
    Listed(Items<TemplateView>),
    Read(TemplateView),
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
    Params(ListParams { uri_template, limit, cursor }): Params<ListParams>,
) -> Answer<Response> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.list_or_read::<ResourceTemplate>(uri_template, PageParams::new(limit, cursor)).await?)
}

/// Adds or replaces a resource template.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "putTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    request_body = TemplateInput,
    responses(PutAnswers)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.put::<ResourceTemplate>(&param.uri_template, condition, request).await?)
}

/// Removes a resource template.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "deleteTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.remove::<ResourceTemplate>(&param.uri_template, condition).await?)
}
