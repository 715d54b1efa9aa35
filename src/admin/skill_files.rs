//! `/agents/{agent}/skills/file`: single files of skills.

use ::skill::{FilePath, SkillPath};
use axum::extract::Request;
use axum::response::IntoResponse;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::content::declared;
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, bytes};
use super::openapi::{DeleteAnswers, Preconditions, Problems, WriteProblems};
use super::services::Answer;
use super::skills::skill_path;
use crate::catalog::resources::RawContent;
use crate::catalog::skills::RawFile;
use crate::http::precondition::etag;
use crate::model::fault::Fault;
use crate::model::skill::SkillRoot;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct FileParams {
    /// The path of the skill.
    path: String,
    /// The path of the file in the skill.
    file: String,
}

impl FileParams {
    fn parse(&self) -> Result<(SkillPath, FilePath), Fault> {
        let file = FilePath::parse(&self.file);
        let file = file.map_err(|error| Fault::invalid_params(format!("file {error}")))?;
        Ok((skill_path(&self.path)?, file))
    }
}

/// Adds or replaces one file of a skill.
///
/// `SKILL.md` adds the skill if there is none. Without a `Content-Type` the file keeps its MIME type.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/skills/file",
    operation_id = "putSkillFile",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), FileParams, Preconditions),
    request_body(content = Vec<u8>, description = "The bytes, `Content-Type` being their MIME type", content_type = "*/*"),
    responses((status = 200, description = "Replaced, or unchanged", headers(("ETag" = String, description = "The revision that last changed the skill"))), (status = 201, description = "A skill was added", headers(("ETag" = String, description = "The revision that last changed the skill"))), WriteProblems)
)]
pub(super) async fn write(
    call: CatalogCall,
    Params(params): Params<FileParams>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let (skill, path) = params.parse()?;
    let mime_type = declared(request.headers())?;
    let bytes = bytes(request, call.app.content_limits.skill.bytes).await?;
    let file = RawFile { skill, path, content: RawContent { mime_type, bytes } };
    let (status, audited) = call.authority.answers_put();
    let written = call.app.catalog.put_file(&agent, file, condition, audited).await?;
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Reads the bytes of a file of a skill.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/skills/file",
    operation_id = "readSkillFile",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), FileParams),
    responses((status = 200, description = "The bytes", body = Vec<u8>, content_type = "*/*", headers(("ETag" = String, description = "The revision that last changed the skill"))), Problems)
)]
pub(super) async fn read(call: CatalogCall, Params(params): Params<FileParams>) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let (skill, path) = params.parse()?;
    let file = call.app.catalog.read_file(&agent, &SkillRoot::of(&skill), &path).await?;
    let mime = file.mime_type.as_deref().and_then(|mime| HeaderValue::try_from(mime).ok());
    let headers = [
        (CONTENT_TYPE, mime.unwrap_or(HeaderValue::from_static("application/octet-stream"))),
        (ETAG, etag(file.revision)),
        // Content of a tenant: browsers must not interpret it as a page of the gateway.
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((headers, file.bytes))
}

/// Removes a file of a skill, except `SKILL.md`.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/skills/file",
    operation_id = "deleteSkillFile",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), FileParams, Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    call: CatalogCall,
    Params(params): Params<FileParams>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let (skill, path) = params.parse()?;
    let (status, audited) = call.authority.answers(StatusCode::NO_CONTENT);
    let key = (SkillRoot::of(&skill), path);
    let written = call.app.catalog.delete_file(&agent, key, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}
