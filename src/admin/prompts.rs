//! `/agents/{agent}/prompts`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;

use super::authority::Authority;
use super::definition::{PromptInput, PromptView};
use super::extract::{Condition, Nothing, Params, Segment, Segments, json};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::resources::AROUND_CONTENTS;
use super::services::{Answer, App};
use crate::http::precondition::etag;
use crate::model::fault::Fault;
use crate::model::prompt::PromptName;

fn checked(name: &str) -> Result<PromptName, Fault> {
    PromptName::parse(name).map_err(|error| Fault::invalid_params(format!("name {error}")))
}

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
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let page = params.open(&app.seal, "prompts", agent.uid.0)?;
    let prompts = app.catalog.prompts(&agent, &page.after, page.read()).await?;
    Ok(page.answer(prompts, |prompt| prompt.name.to_string(), PromptView::listed))
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
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let full = app.catalog.prompt(&agent, &checked(&name)?).await?;
    let tag = etag(full.prompt.revision);
    Ok(([(ETAG, tag)], Json(PromptView::whole(full.prompt, &full.messages)?)))
}

/// Adds or replaces a prompt.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "putPrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    request_body = PromptInput,
    responses((status = 200, description = "Replaced, or unchanged", headers(("ETag" = String, description = "The revision that last changed it"))), (status = 201, description = "Added", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn write(
    State(app): App,
    authority: Authority,
    Segments(slug, name): Segments,
    _: Params<Nothing>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let name = checked(&name)?;
    // Every character of text may be escaped.
    let input: PromptInput = json(request, app.content_bytes * 2 + AROUND_CONTENTS).await?;
    let new = input.check(name, app.content_bytes)?;
    let (status, audited) = authority.answers_put();
    let written = app.catalog.put_prompt(&agent, new, condition, audited).await?;
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Removes a prompt.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "deletePrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    responses((status = 204, description = "Removed", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segments(slug, name): Segments,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let revision = app.catalog.delete_prompt(&agent, checked(&name)?, condition, audited).await?;
    Ok((status, [(ETAG, etag(revision))]))
}
