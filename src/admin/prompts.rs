//! `/agents/{agent}/prompts`.

use axum::extract::{Request, State};
use axum::response::IntoResponse;

use super::authority::Authority;
use super::definition::{PromptInput, PromptView};
use super::definitions::CatalogCall;
use super::extract::{Condition, Nothing, Params, Segment, Segments};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::model::prompt::Prompt;

/// Lists prompts, without their messages.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/prompts",
    operation_id = "listPrompts",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), PageParams),
    responses((status = 200, description = "A page of definitions", body = Items<PromptView>), Problems)
)]
pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.list::<Prompt>(&params).await?)
}

/// Reads a prompt, in the format of `PUT`.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "readPrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt")),
    responses((status = 200, description = "The prompt", body = PromptView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segments(slug, name): Segments,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.read::<Prompt>(&name).await?)
}

/// Adds or replaces a prompt.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "putPrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    request_body = PromptInput,
    responses(PutAnswers)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segments(slug, name): Segments,
    _: Params<Nothing>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.put::<Prompt>(&name, condition, request).await?)
}

/// Removes a prompt.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "deletePrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segments(slug, name): Segments,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let call = CatalogCall { app: &app, authority: &authority, slug: &slug };
    Ok(call.remove::<Prompt>(&name, condition).await?)
}
