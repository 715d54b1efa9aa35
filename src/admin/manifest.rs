//! `/agents/{agent}/manifest`: the whole catalog of an agent.

use std::io::{self, Write};

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::authority::Authority;
use super::definition::{ManifestInput, ManifestView};
use super::extract::{Condition, Nothing, Params, Segment, json_bytes, parse, run_blocking};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::services::{Admin, Answer, App};
use crate::catalog::manifest::{Applied, Keys, NewManifest, too_large};
use crate::http::precondition::etag;
use crate::model::fault::Fault;
use crate::model::kinds::ByKind;
use crate::model::scope::Revision;
use crate::model::skill::SkillRoot;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ApplyParams {
    /// Whether to return only what would be changed.
    #[serde(default)]
    dry_run: bool,
}

/// What was changed, or would be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Applied)]
#[serde(rename_all = "camelCase")]
struct AppliedView {
    /// The revision of the catalog.
    #[schema(value_type = i64)]
    revision: Revision,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    created: NamesView,
    updated: NamesView,
    deleted: NamesView,
    /// The number of unchanged definitions.
    unchanged: usize,
}

/// Definitions by URI, URI template or name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Names)]
struct NamesView {
    count: usize,
    resources: Vec<String>,
    templates: Vec<String>,
    prompts: Vec<String>,
    skills: Vec<String>,
    mounts: Vec<String>,
}

impl From<ByKind<Keys>> for NamesView {
    fn from(keys: ByKind<Keys>) -> Self {
        let ByKind { resources, templates, prompts, skills, mounts } = keys;
        let count = resources.len() + templates.len() + prompts.len() + skills.len() + mounts.len();
        let path = |root: String| SkillRoot::parse(&root).map_or(root, |root| root.path());
        let skills = skills.into_iter().map(path).collect();
        Self { count, resources, templates, prompts, skills, mounts }
    }
}

/// Makes an agent's catalog equal to a manifest, in one transaction and one revision.
///
/// Definitions that are not in it are deleted; those that do not differ stay unchanged.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/manifest",
    operation_id = "applyManifest",
    tag = "Manifests",
    params(("agent" = String, Path, description = "The id of the agent"), ApplyParams, Preconditions),
    request_body = ManifestInput,
    responses((status = 200, description = "What was changed, or would be", body = AppliedView, headers(("ETag" = String, description = "The revision of the catalog"))), WriteProblems)
)]
pub(super) async fn apply(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(ApplyParams { dry_run }): Params<ApplyParams>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let body = json_bytes(request, app.manifests.bytes).await?;
    let _permit = app.manifests.acquire(agent.tenant, &authority.call().intake).await?;
    let wanted = read(&app, body, slug).await?;
    let (status, applied) = if dry_run {
        // Databases of tenants are awaited without the permit for queries, which is held for what follows: nothing is written.
        authority.call().intake.wait(app.catalog.check_manifest(&agent, &wanted, &condition)).await?;
        (StatusCode::OK, app.catalog.plan_manifest(&agent, &wanted, &condition).await?)
    } else {
        let (status, audited) = authority.answers(StatusCode::OK);
        (status, app.catalog.apply_manifest(&agent, wanted, condition, audited).await?)
    };
    let Applied { revision, created, updated, deleted, unchanged } = applied;
    let (created, updated, deleted) = (created.into(), updated.into(), deleted.into());
    let shown = AppliedView { revision, dry_run, created, updated, deleted, unchanged };
    Ok((status, [(ETAG, etag(revision))], Json(shown)))
}

/// Parses and validates a manifest on a separate thread.
async fn read(app: &Admin, body: Bytes, slug: String) -> Result<NewManifest, Fault> {
    let limits = app.content_limits;
    run_blocking(move || {
        let input: ManifestInput = parse(&body)?;
        drop(body);
        if input.agent.as_ref().is_some_and(|agent| *agent != slug) {
            return Err(Fault::invalid_params("agent differs from the one in the path"));
        }
        input.check(limits)
    })
    .await
}

/// Reads the whole catalog of an agent, in the format of `PUT`.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/manifest",
    operation_id = "readManifest",
    tag = "Manifests",
    params(("agent" = String, Path, description = "The id of the agent")),
    responses((status = 200, description = "The manifest", body = ManifestView, headers(("ETag" = String, description = "The revision of the catalog"))), Problems)
)]
pub(super) async fn show(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let agent = authority.catalog_of(&app.identity, &slug).await?;
    let _permit = app.manifests.acquire(agent.tenant, &authority.call().intake).await?;
    let most = app.manifests.bytes;
    let full = app.catalog.manifest(&agent, most).await?;
    let tag = etag(full.revision);
    let text = run_blocking(move || {
        let mut text = Bounded { text: Vec::new(), most };
        let written = serde_json::to_writer(&mut text, &ManifestView::whole(agent.slug, full)?);
        match written {
            Ok(()) => Ok(text.text),
            Err(error) if error.is_io() => Err(too_large(most)),
            Err(error) => Err(Fault::Internal(error.to_string())),
        }
    })
    .await?;
    Ok(([(ETAG, tag), (CONTENT_TYPE, http::HeaderValue::from_static("application/json"))], text))
}

/// A writer that fails above a number of bytes.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.text.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
