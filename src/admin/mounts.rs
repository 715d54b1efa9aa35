//! Mounts: their JSON, and `/agents/{agent}/mounts`.

use std::collections::BTreeMap;

use axum::extract::Request;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::definition::checks::annotations;
use super::definition::form::{ContentLimits, Form};
use super::definitions::CatalogCall;
use super::extract::{Condition, Nothing, Params, SecondSegment};
use super::openapi::{DeleteAnswers, Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{ResourceUri, Slug};
use crate::model::label::{Label, Labels};
use crate::model::mount::{Ages, Mount, MountPlace, MountState, MountStatus, NewMount};

/// The body limit of a mount: every member at its maximum length, every character escaped.
const MAX_BYTES: usize = 1024 * 1024;

/// A mount as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewMount)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MountInput {
    /// Must equal the name of the path if both are set.
    name: Option<String>,
    /// The id of a connection of the kind `file`, `git` or `s3` that the tenant may use.
    connection: String,
    /// A directory below that of the connection, percent-encoded, with a `/` at its end; the whole connection by default.
    path: Option<String>,
    /// A branch, tag or commit, in place of the connection's.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// What the URIs of the files begin with; ends in `/`.
    uri: String,
    /// Globs of the files, by their paths below `path`; all by default. `*` does not match `/`, `**` does.
    #[schema(max_items = 64)]
    include: Option<Vec<String>>,
    /// Globs of files that are left out.
    #[schema(max_items = 64)]
    exclude: Option<Vec<String>>,
    /// `Annotations` of the MCP specification, for each file.
    #[schema(value_type = Option<Object>)]
    annotations: Option<Box<RawValue>>,
    /// Only callers who have one of them see the files; none: every caller does.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    /// For how many milliseconds content is answered without asking the source again.
    #[schema(maximum = 86_400_000)]
    ttl_ms: Option<u32>,
    /// For how many milliseconds more it is answered while it is revalidated, or while the source fails.
    #[schema(maximum = 86_400_000)]
    stale_ms: Option<u32>,
    /// Ignored, like the next three: what is read can be sent.
    #[serde(rename = "state")]
    #[schema(ignore)]
    _state: Option<IgnoredAny>,
    #[serde(rename = "entries")]
    #[schema(ignore)]
    _entries: Option<IgnoredAny>,
    #[serde(rename = "checkedAt")]
    #[schema(ignore)]
    _checked_at: Option<IgnoredAny>,
    #[serde(rename = "reason")]
    #[schema(ignore)]
    _reason: Option<IgnoredAny>,
}

/// A mount as returned: what was sent, and how its scans go.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Mount)]
pub(crate) struct MountView {
    #[serde(flatten)]
    mount: ExportedMount,
    #[serde(flatten)]
    status: StatusView,
}

/// A mount as it was sent: in a manifest.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ManifestMount)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExportedMount {
    #[schema(value_type = String)]
    name: Slug,
    connection: String,
    path: String,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[schema(value_type = String)]
    uri: ResourceUri,
    include: Vec<String>,
    exclude: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    annotations: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_ms: Option<u32>,
}

/// How the scans of a mount go.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MountStatus)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    state: MountState,
    /// How many files are listed.
    entries: u64,
    /// When the last scan ended; `null` before the first.
    #[serde(with = "time::serde::rfc3339::option")]
    checked_at: Option<OffsetDateTime>,
    /// Why it is degraded or failed: the reasons of a source that failed, `timeout`, `not_found`, or `too_large` with more
    /// files than a mount lists.
    reason: Option<String>,
}

impl From<MountView> for ExportedMount {
    fn from(view: MountView) -> Self {
        view.mount
    }
}

impl Form for Mount {
    type Input = MountInput;
    type View = MountView;
    type Exported = ExportedMount;

    fn most_bytes(_: ContentLimits) -> usize {
        MAX_BYTES
    }

    fn sent_key(input: &MountInput) -> Option<&str> {
        input.name.as_deref()
    }

    fn validate(input: MountInput, name: Slug, _: ContentLimits) -> Result<NewMount, Fault> {
        if input.name.is_some_and(|own| own != name.as_str()) {
            return Err(Fault::invalid_params("name differs from the one in the path"));
        }
        let uri = ResourceUri::parse(&input.uri);
        NewMount {
            name,
            uri: uri.map_err(|error| Fault::invalid_params(format!("uri {error}")))?,
            place: MountPlace {
                connection: input.connection,
                path: input.path.unwrap_or_default(),
                reference: input.reference,
                include: input.include.unwrap_or_default(),
                exclude: input.exclude.unwrap_or_default(),
            },
            ages: Ages { ttl_ms: input.ttl_ms, stale_ms: input.stale_ms },
            annotations: annotations("annotations", input.annotations)?,
            labels: input.labels.unwrap_or_default(),
        }
        .check()
    }

    fn listed(self) -> MountView {
        let Self { name, uri, place, ages, annotations, labels, status, .. } = self;
        let MountPlace { connection, path, reference, include, exclude } = place;
        let Ages { ttl_ms, stale_ms } = ages;
        let mount = ExportedMount {
            name,
            connection,
            path,
            reference,
            uri,
            include,
            exclude,
            annotations,
            labels,
            ttl_ms,
            stale_ms,
        };
        let MountStatus { state, entries, checked_at, reason } = status.unwrap_or_default();
        MountView { mount, status: StatusView { state, entries, checked_at, reason } }
    }

    fn whole(self, _: &BTreeMap<ContentHash, Bytes>) -> Result<MountView, Fault> {
        Ok(self.listed())
    }
}

/// Lists mounts.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/mounts",
    operation_id = "listMounts",
    tag = "Mounts",
    params(("agent" = String, Path, description = "The id of the agent"), PageParams),
    responses((status = 200, description = "A page of mounts", body = Items<MountView>), Problems)
)]
pub(super) async fn list(call: CatalogCall, Params(params): Params<PageParams>) -> Answer<impl IntoResponse> {
    Ok(call.list::<Mount>(&params).await?)
}

/// Reads a mount.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/mounts/{name}",
    operation_id = "readMount",
    tag = "Mounts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the mount")),
    responses((status = 200, description = "The mount", body = MountView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    Ok(call.read::<Mount>(&name).await?)
}

/// Adds or replaces a mount.
///
/// Its files are resources as soon as they are found. Another connection, directory, URI or selection of files is scanned anew.
/// Answers the mount as a `GET` does.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/mounts/{name}",
    operation_id = "putMount",
    tag = "Mounts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the mount"), Preconditions),
    request_body = MountInput,
    responses((status = 200, description = "Replaced, or unchanged", body = MountView, headers(("ETag" = String, description = "The revision that last changed it"))), (status = 201, description = "Added", body = MountView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn write(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let (status, tag) = call.put::<Mount>(&name, condition, request).await?;
    // It is written, even if it was removed since.
    Ok(match call.read::<Mount>(&name).await {
        Ok((_, mount)) => (status, tag, mount).into_response(),
        Err(_) => (status, tag).into_response(),
    })
}

/// Removes a mount, with the resources that are its files.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/mounts/{name}",
    operation_id = "deleteMount",
    tag = "Mounts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the mount"), Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    Ok(call.remove::<Mount>(&name, condition).await?)
}
