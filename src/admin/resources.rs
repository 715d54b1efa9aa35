//! `/agents/{agent}/resources`, and `touch`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::definition::{ResourceInput, ResourceView};
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, Segment};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::http::precondition::etag;
use crate::model::definition::DefinitionKind;
use crate::model::resource::Resource;

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
    pub(super) uri: String,
}

/// A page, or one definition.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answer of `CatalogCall::list_or_read`")]
enum ListedOrRead {
    Listed(Items<ResourceView>),
    Read(ResourceView),
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
    Params(ListParams { uri, limit, cursor }): Params<ListParams>,
) -> Answer<Response> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.list_or_read::<Resource>(uri, PageParams::new(limit, cursor)).await?)
}

/// Adds or replaces a resource.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/resources",
    operation_id = "putResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    request_body = ResourceInput,
    responses(PutAnswers)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.put::<Resource>(&param.uri, condition, request).await?)
}

/// Removes a resource.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/resources",
    operation_id = "deleteResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.remove::<Resource>(&param.uri, condition).await?)
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
    let uri = Resource::parse_key(&param.uri)?;
    let written = app.catalog.touch_resource(&agent, uri, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}
