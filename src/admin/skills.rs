//! Skills: their JSON and archives, and `/agents/{agent}/skills`.

use std::collections::BTreeMap;

use ::skill::{CheckedSkill, Format, RawFile as UncheckedFile, SkillPath, check, unpack};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, ETAG};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::definition::ContentLimits;
use super::definition::checks::{MimeText, checked_mime, decoded};
use super::definition::form::{Form, content};
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, bytes, parse, run_blocking};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::catalog::skills::raw;
use crate::http::media_type::{self, essence};
use crate::http::precondition::etag;
use crate::model::content::ContentHash;
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::json::Object;
use crate::model::label::{Label, Labels};
use crate::model::resource::PartKind;
use crate::model::skill::{NewSkill, NewSkillFile, Skill, SkillRoot};

/// The bytes of an archive besides its files.
const ENVELOPE_BYTES: usize = 4 << 20;

/// A skill as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewSkill)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SkillInput {
    /// Must equal the path of the query if both are set.
    path: Option<String>,
    /// Only callers who have one of them see the skill; none: every caller does.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    #[schema(value_type = Vec<FileInput>)]
    files: Vec<Object<FileInput>>,
}

/// A file of a skill: either text or base64.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SkillFileInput)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileInput {
    /// Its path in the skill.
    path: String,
    text: Option<String>,
    blob: Option<String>,
    /// Without it the type of the file's name.
    mime_type: Option<MimeText>,
}

impl FileInput {
    fn check(self, index: usize) -> Result<(UncheckedFile, Option<String>), Fault> {
        let bytes = match (self.text, self.blob) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(blob)) => decoded(&format!("files[{index}].blob"), &blob)?,
            _ => {
                return Err(Fault::invalid_params(format!("files[{index}] must have either text or blob")));
            }
        };
        let field = format!("files[{index}].mimeType");
        let mime_type = self.mime_type.map(|mime| checked_mime(&field, mime)).transpose()?;
        Ok((UncheckedFile { path: self.path, bytes }, mime_type))
    }
}

/// A skill as returned: in a list, or with its contents in the format of `PUT`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Skill)]
#[serde(untagged)]
pub(crate) enum SkillView {
    Listed(ListedSkill),
    Whole(WholeSkill),
}

/// A skill without its contents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedSkill {
    path: String,
    #[schema(value_type = String)]
    uri: ResourceUri,
    name: String,
    description: String,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    files: Vec<ListedFile>,
}

/// A file of a skill without its content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ListedFile {
    path: String,
    #[schema(value_type = String)]
    uri: ResourceUri,
    mime_type: Option<String>,
    size: u64,
    /// `sha256:` and 64 hexadecimal digits.
    digest: String,
}

/// A skill in the format of `PUT`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeSkill {
    path: String,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    files: Vec<WholeFile>,
}

/// A file of a skill with its content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WholeFile {
    path: String,
    mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

impl Form for Skill {
    type Input = SkillInput;
    type View = SkillView;
    type Exported = SkillView;

    fn most_bytes(limits: ContentLimits) -> usize {
        limits.skill.bytes * 2 + ENVELOPE_BYTES
    }

    fn sent_key(input: &SkillInput) -> Option<&str> {
        input.path.as_deref()
    }

    fn validate(input: SkillInput, root: SkillRoot, limits: ContentLimits) -> Result<NewSkill, Fault> {
        if input.path.is_some_and(|own| own != root.path()) {
            return Err(Fault::invalid_params("path differs from the one in the query"));
        }
        let mut types = BTreeMap::new();
        let files = input.files.into_iter().enumerate().map(|(index, Object(file))| {
            let (file, mime_type) = file.check(index)?;
            types.extend(mime_type.map(|mime_type| (file.path.clone(), mime_type)));
            Ok(file)
        });
        let files = files.collect::<Result<_, Fault>>()?;
        checked(&root, files, limits, types, input.labels.unwrap_or_default())
    }

    fn listed(self) -> SkillView {
        let files = self.files.into_iter().map(|file| ListedFile {
            path: file.path,
            uri: file.resource.uri.clone(),
            mime_type: file.part.mime_type,
            size: file.part.size,
            digest: format!("sha256:{}", file.part.hash),
        });
        SkillView::Listed(ListedSkill {
            path: self.root.path(),
            uri: self.skill_md.uri.clone(),
            name: self.skill_md.definition.name.clone(),
            description: self.skill_md.definition.description.clone().unwrap_or_default(),
            labels: self.labels,
            files: files.collect(),
        })
    }

    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<SkillView, Fault> {
        let files = self.files.into_iter().map(|file| {
            let bytes = content(bytes, file.part.hash);
            let is_text = file.part.kind == PartKind::Text;
            WholeFile {
                path: file.path,
                mime_type: file.part.mime_type,
                text: is_text.then(|| String::from_utf8_lossy(bytes).into_owned()),
                blob: (!is_text).then(|| BASE64_STANDARD.encode(bytes)),
            }
        });
        let (path, labels) = (self.root.path(), self.labels);
        Ok(SkillView::Whole(WholeSkill { path, labels, files: files.collect() }))
    }
}

/// Validates the files of a skill.
fn checked(
    root: &SkillRoot,
    files: Vec<UncheckedFile>,
    limits: ContentLimits,
    mut types: BTreeMap<String, String>,
    labels: Labels,
) -> Result<NewSkill, Fault> {
    let checked = check(&skill_path(&root.path())?, files, limits.skill);
    let CheckedSkill { frontmatter, files } =
        checked.map_err(|error| Fault::invalid_params(error.to_string()))?;
    let files = files.into_iter().map(|file| {
        let mime_type = types.remove(file.path.as_str());
        NewSkillFile::new(file.path, mime_type, Bytes::from(file.bytes))
    });
    NewSkill::new(root.clone(), raw(&frontmatter)?, labels, files.collect())
}

pub(super) fn skill_path(text: &str) -> Result<SkillPath, Fault> {
    SkillPath::parse(text).map_err(|error| Fault::invalid_params(format!("path {error}")))
}

/// The skill in an archive.
fn unpacked(
    format: Format,
    archive: &[u8],
    root: &SkillRoot,
    limits: ContentLimits,
) -> Result<NewSkill, Fault> {
    let path = root.path();
    let folder = path.rsplit('/').next().unwrap_or(&path);
    let files = unpack(format, archive, folder, limits.skill);
    let files = files.map_err(|error| Fault::invalid_params(error.to_string()))?;
    checked(root, files, limits, BTreeMap::new(), Labels::default())
}

/// The archive that a body is declared to be; `None` for JSON.
fn declared_archive(headers: &HeaderMap) -> Result<Option<Format>, Fault> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match essence(value).to_ascii_lowercase().as_str() {
        "application/zip" | "application/x-zip-compressed" => Ok(Some(Format::Zip)),
        "application/gzip" | "application/x-gzip" | "application/x-tar+gzip" => Ok(Some(Format::TarGz)),
        _ if media_type::is_json(headers) => Ok(None),
        _ => Err(Fault::UnsupportedMediaType("application/json, application/zip or application/gzip")),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// One skill with its contents.
    path: Option<String>,
    /// The maximum number of items on the page, which has fewer once they have about 10,000 files together.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PathParam {
    /// The path of the skill, whose last segment is its name.
    path: String,
}

/// A page, or one skill.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answer of `CatalogCall::list_or_read`")]
enum ListedOrRead {
    Listed(Items<ListedSkill>),
    Read(WholeSkill),
}

/// Lists skills, or reads one.
///
/// With `path` one skill with its contents, without it a page of skills with the digests of their files.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/skills",
    operation_id = "readSkills",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), ListParams),
    responses((status = 200, description = "Without `path` a page of skills; with it that skill with its contents, in the format of `PUT`", body = inline(ListedOrRead), headers(("ETag" = String, description = "With `path`, the revision that last changed it"))), Problems)
)]
pub(super) async fn list_or_read(call: CatalogCall, Params(params): Params<ListParams>) -> Answer<Response> {
    let page = PageParams::new(params.limit, params.cursor);
    Ok(call.list_or_read::<Skill>(params.path, page).await?)
}

/// Adds a skill or replaces all of its files.
///
/// As JSON, or as an archive with `SKILL.md` at its root or in one folder of the skill's name; an archive keeps the labels.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/skills",
    operation_id = "putSkill",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), PathParam, Preconditions),
    request_body(content(
        (SkillInput = "application/json"),
        (Vec<u8> = "application/zip"),
        (Vec<u8> = "application/gzip")
    )),
    responses(PutAnswers)
)]
pub(super) async fn write(
    call: CatalogCall,
    Params(param): Params<PathParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let root = Skill::parse_key(&param.path)?;
    let format = declared_archive(request.headers())?;
    let limits = call.app.content_limits;
    let most = match format {
        Some(_) => limits.skill.bytes + ENVELOPE_BYTES,
        None => Skill::most_bytes(limits),
    };
    let body = bytes(request, most).await?;
    let _permit = call.app.manifests.acquire(agent.tenant, &call.authority.call().intake).await?;
    let new = run_blocking(move || match format {
        None => Skill::validate(parse(&body)?, root, limits),
        Some(format) => unpacked(format, &body, &root, limits),
    });
    let new = new.await?;
    let (status, audited) = call.authority.answers_put();
    let written = match format {
        None => call.app.catalog.put::<Skill>(&agent, new, condition, audited).await?,
        Some(_) => call.app.catalog.put_files(&agent, new, condition, audited).await?,
    };
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Removes a skill.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/skills",
    operation_id = "deleteSkill",
    tag = "Skills",
    params(("agent" = String, Path, description = "The id of the agent"), PathParam, Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    call: CatalogCall,
    Params(param): Params<PathParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    Ok(call.remove::<Skill>(&param.path, condition).await?)
}
