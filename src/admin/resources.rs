//! Resources: their JSON, and `/agents/{agent}/resources` with `touch`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::IntoResponse;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::ETAG;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::definition::checks::{
    self, DefinitionInput, Description, MAX_RAW, MimeText, Name, checked_mime, decoded,
};
use super::definition::form::{ContentLimits, Form, content};
use super::definition::routes::routes_by_query;
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, present};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers, WriteProblems};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::http::precondition::etag;
use crate::model::content::ContentHash;
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::json::{Object, raw_text};
use crate::model::label::{Label, Labels};
use crate::model::place::{SourcePlace, SourceText};
use crate::model::resource::{Definition, NewPart, NewResource, PartKind, Resource};

/// The maximum number of contents of a resource.
const MAX_PARTS: usize = 1_000;

/// A resource as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewResource)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub(crate) struct ResourceInput {
    /// Must equal the URI of the query if both are set.
    uri: Option<String>,
    name: Name,
    title: Option<Name>,
    description: Option<Description>,
    mime_type: Option<MimeText>,
    /// `Annotations` of the MCP specification.
    #[schema(value_type = Option<Object>)]
    annotations: Option<Box<RawValue>>,
    /// A list of `Icon` of the MCP specification.
    #[schema(value_type = Option<Vec<Object>>)]
    icons: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
    /// Only callers who have one of them see the resource; none: every caller does.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    /// Either the contents or `source` is required.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<ContentInput>>)]
    contents: Option<Vec<Object<ContentInput>>>,
    /// Where the content is, in place of `contents`.
    #[schema(value_type = Option<SourceText>)]
    source: Option<Box<RawValue>>,
}

/// Either `contents` or `source` is required: the error of neither is that of a missing `contents`.
impl<'de> Deserialize<'de> for ResourceInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let input = Self::deserialize(deserializer)?;
        if input.contents.is_none() && input.source.is_none() {
            return Err(D::Error::missing_field("contents"));
        }
        Ok(input)
    }
}

/// A content: either text or base64.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Content)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ContentInput {
    text: Option<String>,
    blob: Option<String>,
    mime_type: Option<MimeText>,
    uri: Option<String>,
    /// At most 64 KiB, of all contents of the resource together.
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
}

impl ContentInput {
    fn check(self, index: usize) -> Result<NewPart, Fault> {
        let wrong = |what: &str| Fault::invalid_params(format!("contents[{index}]{what}"));
        let (kind, bytes) = match (self.text, self.blob) {
            (Some(text), None) if text.contains('\0') => {
                return Err(wrong(".text contains a NUL character; send it as blob"));
            }
            (Some(text), None) => (PartKind::Text, Bytes::from(text)),
            (None, Some(blob)) => {
                (PartKind::Blob, Bytes::from(decoded(&format!("contents[{index}].blob"), &blob)?))
            }
            _ => return Err(wrong(" must have either text or blob")),
        };
        let uri = self.uri.map(|uri| ResourceUri::parse(&uri)).transpose();
        let uri = uri.map_err(|error| wrong(&format!(".uri {error}")))?;
        let field = format!("contents[{index}].mimeType");
        let mime_type = self.mime_type.map(|mime| checked_mime(&field, mime)).transpose()?;
        let meta = checks::meta(&format!("contents[{index}]._meta"), self.meta)?;
        Ok(NewPart::new(uri, mime_type, kind, bytes).with_meta(meta))
    }
}

/// A resource as returned: what was sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Resource)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceView {
    #[schema(value_type = String)]
    uri: ResourceUri,
    #[serde(flatten)]
    definition: Definition,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<Vec<ContentView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceText>,
}

/// A source as it was sent.
fn sent(source: Option<&Arc<SourcePlace>>) -> Option<SourceText> {
    source.map(|source| source.text().clone())
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ContentView {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    uri: Option<ResourceUri>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(flatten)]
    body: BodyView,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BodyView {
    Text(String),
    Blob(String),
}

impl Form for Resource {
    type Input = ResourceInput;
    type View = ResourceView;
    type Exported = ResourceView;

    fn sent_key(input: &ResourceInput) -> Option<&str> {
        input.uri.as_deref()
    }

    fn validate(input: ResourceInput, uri: ResourceUri, limits: ContentLimits) -> Result<NewResource, Fault> {
        if input.uri.is_some_and(|own| ResourceUri::parse(&own).as_ref() != Ok(&uri)) {
            return Err(Fault::invalid_params("uri differs from the one in the query"));
        }
        let source = checks::source(input.source)?;
        if source.is_some() && input.contents.is_some() {
            return Err(Fault::invalid_params("contents and source exclude each other"));
        }
        if source.as_ref().is_some_and(|source| !source.place().variables().is_empty()) {
            return Err(Fault::invalid_params("source has variables, which only templates have"));
        }
        let contents = input.contents.unwrap_or_default();
        if contents.len() > MAX_PARTS {
            return Err(Fault::invalid_params(format!("contents: at most {MAX_PARTS}")));
        }
        let definition = DefinitionInput {
            name: input.name,
            title: input.title,
            description: input.description,
            mime_type: input.mime_type,
            annotations: input.annotations,
            icons: input.icons,
            meta: input.meta,
        };
        let definition = definition.check()?;
        let parts = contents.into_iter().enumerate().map(|(i, Object(part))| part.check(i));
        let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
        if parts.iter().map(|part| part.bytes.len()).sum::<usize>() > limits.content_bytes {
            return Err(Fault::PayloadTooLarge(limits.content_bytes));
        }
        // They are in memory with the definition, unlike the contents.
        let metas = parts.iter().filter_map(|new| raw_text(new.part.meta.as_deref()));
        if metas.map(str::len).sum::<usize>() > MAX_RAW {
            let wrong = format!("contents: all _meta together exceed {MAX_RAW} bytes");
            return Err(Fault::invalid_params(wrong));
        }
        Ok(NewResource { uri, definition, labels: input.labels.unwrap_or_default(), parts, source })
    }

    fn listed(self) -> ResourceView {
        let size = self.size();
        let Self { uri, definition, labels, source, .. } = self;
        ResourceView { uri, definition, labels, size, contents: None, source: sent(source.as_ref()) }
    }

    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<ResourceView, Fault> {
        let body = |kind, bytes: &[u8]| match kind {
            PartKind::Text => BodyView::Text(String::from_utf8_lossy(bytes).into_owned()),
            PartKind::Blob => BodyView::Blob(BASE64_STANDARD.encode(bytes)),
        };
        let Self { uri, definition, labels, parts, source, .. } = self;
        let contents = parts.into_iter().map(|part| ContentView {
            body: body(part.kind, content(bytes, part.hash)),
            uri: part.uri,
            mime_type: part.mime_type,
            meta: part.meta,
        });
        let contents = source.is_none().then(|| contents.collect());
        Ok(ResourceView { uri, definition, labels, size: None, contents, source: sent(source.as_ref()) })
    }
}

routes_by_query! {
    Resource(ResourceInput, ResourceView), "/admin/v1/agents/{agent}/resources", "Resources",
    UriParam.uri(
        /// The URI of the resource.
        key,
        /// One resource with its contents.
        one
    ),
    /// Lists resources, or reads one.
    ///
    /// With `uri` one resource with its contents, without it a page of definitions.
    get "readResources"(
        "Without `uri` a page of definitions; with it that resource with its contents, in the format of `PUT`",
        "With `uri`, the revision that last changed it"
    ),
    /// Adds or replaces a resource.
    put "putResource",
    /// Removes a resource.
    delete "deleteResource",
}

/// Notifies the subscribers of a resource, without new content: one that is registered, or that a template or a mount serves.
#[utoipa::path(
    post,
    path = "/admin/v1/agents/{agent}/resources/touch",
    operation_id = "touchResource",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    responses((status = 202, description = "Subscribers are notified", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn touch(
    call: CatalogCall,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let (status, audited) = call.authority.answers(StatusCode::ACCEPTED);
    let uri = Resource::parse_key(&param.uri)?;
    let written = call.app.catalog.touch_resource(&agent, uri, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}
