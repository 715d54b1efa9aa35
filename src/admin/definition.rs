//! A resource as it is sent to and shown by the admin surface and in manifests.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use crate::model::fault::Fault;
use crate::model::json::{self, Object};
use crate::model::resource::{ContentHash, Definition, NewPart, NewResource, PartKind, Resource};
use crate::model::uri::ResourceUri;

/// Bytes of `annotations`, `icons` and `_meta`, each.
const MOST_RAW: usize = 64 * 1024;
/// Contents of one resource.
const MOST_PARTS: usize = 1_000;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $called:literal, $range:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize, ToSchema)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let range: std::ops::RangeInclusive<usize> = $range;
                let (least, most) = (range.start(), range.end());
                if text.contains('\0') {
                    Err(concat!($called, " holds a NUL character").to_owned())
                } else if range.contains(&text.len()) {
                    Ok(Self(text))
                } else {
                    Err(format!(concat!($called, " must have {} to {} bytes, not {}"), least, most, text.len()))
                }
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
    };
}

text! {
    /// A name or a title.
    Name, "a name or title", 1..=512
}
text! {
    /// A description.
    Description, "a description", 0..=16_384
}
text! {
    /// Instructions for a client's model.
    Instructions, "instructions", 0..=65_536
}
text! {
    /// A MIME type (RFC 6838 and its parameters), kept as sent.
    MimeText, "a MIME type", 1..=255
}

/// A resource as its owner sends it.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewResource)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceInput {
    /// Must be the URI of the request, where both are given.
    pub uri: Option<String>,
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
    #[schema(value_type = Vec<ContentInput>)]
    contents: Vec<Object<ContentInput>>,
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
}

impl ResourceInput {
    /// Checks everything that the types do not say.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], and [`Fault::PayloadTooLarge`] for contents over `content_bytes` together.
    pub fn check(self, uri: ResourceUri, content_bytes: usize) -> Result<NewResource, Fault> {
        if self.uri.is_some_and(|own| own != uri.as_str()) {
            return Err(Fault::invalid_params("uri differs from the one in the query"));
        }
        if self.contents.len() > MOST_PARTS {
            return Err(Fault::invalid_params("contents: at most 1000"));
        }
        let definition = Definition {
            name: self.name.into(),
            title: self.title.map(Name::into),
            description: self.description.map(Description::into),
            mime_type: self.mime_type.map(|mime| checked_mime("mimeType", mime)).transpose()?,
            annotations: raw("annotations", self.annotations, check_annotations)?,
            icons: raw("icons", self.icons, check_icons)?,
            meta: raw("_meta", self.meta, check_meta)?,
        };
        let parts = self.contents.into_iter().enumerate().map(|(i, Object(part))| part.check(i));
        let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
        if parts.iter().map(|part| part.bytes.len()).sum::<usize>() > content_bytes {
            return Err(Fault::PayloadTooLarge(content_bytes));
        }
        Ok(NewResource { uri, definition, parts })
    }
}

impl ContentInput {
    fn check(self, index: usize) -> Result<NewPart, Fault> {
        let wrong = |what: &str| Fault::invalid_params(format!("contents[{index}]{what}"));
        let (kind, bytes) = match (self.text, self.blob) {
            (Some(text), None) if text.contains('\0') => {
                return Err(wrong(".text holds a NUL character; send it as blob"));
            }
            (Some(text), None) => (PartKind::Text, Bytes::from(text)),
            (None, Some(blob)) => {
                let decoded =
                    BASE64_STANDARD.decode(blob).map_err(|_| wrong(".blob is not base64 (RFC 4648)"))?;
                (PartKind::Blob, Bytes::from(decoded))
            }
            _ => return Err(wrong(" must have either text or blob")),
        };
        let uri = self.uri.map(|uri| ResourceUri::parse(&uri)).transpose();
        let uri = uri.map_err(|error| wrong(&format!(".uri {error}")))?;
        let field = format!("contents[{index}].mimeType");
        let mime_type = self.mime_type.map(|mime| checked_mime(&field, mime)).transpose()?;
        Ok(NewPart::new(uri, mime_type, kind, bytes))
    }
}

/// Checks a MIME type and gives it back as it was sent.
pub fn checked_mime(field: &str, mime: MimeText) -> Result<String, Fault> {
    // A range of types parses, and so does half of one.
    let names_one = |parsed: mime::Mime| {
        ![parsed.type_(), parsed.subtype()].iter().any(|half| *half == "" || *half == "*")
    };
    if mime.0.parse().is_ok_and(names_one) {
        Ok(mime.0)
    } else {
        Err(Fault::invalid_params(format!("{field} is not a MIME type")))
    }
}

fn raw(
    field: &str,
    raw: Option<Box<RawValue>>,
    check: fn(&Value) -> Result<(), String>,
) -> Result<Option<Box<RawValue>>, Fault> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let value =
        json::check(&raw, MOST_RAW).map_err(|error| Fault::invalid_params(format!("{field} {error}")))?;
    check(&value).map_err(|wrong| Fault::invalid_params(format!("{field}{wrong}")))?;
    Ok(Some(raw))
}

/// `Annotations` of the specification's schema.
fn check_annotations(value: &Value) -> Result<(), String> {
    let members = value.as_object().ok_or(" must be an object")?;
    for (name, value) in members {
        let good = match name.as_str() {
            "audience" => value.as_array().is_some_and(|audience| {
                audience.iter().all(|role| matches!(role.as_str(), Some("user" | "assistant")))
            }),
            "priority" => value.as_f64().is_some_and(|priority| (0.0..=1.0).contains(&priority)),
            "lastModified" => value.as_str().is_some_and(|at| OffsetDateTime::parse(at, &Rfc3339).is_ok()),
            _ => return Err(format!(": unknown member `{name}`")),
        };
        if !good {
            return Err(format!(".{name} is not what the specification asks for"));
        }
    }
    Ok(())
}

/// A list of `Icon` of the specification's schema.
fn check_icons(value: &Value) -> Result<(), String> {
    let icons = value.as_array().ok_or(" must be a list")?;
    for (index, icon) in icons.iter().enumerate() {
        let text = |name: &str| icon.get(name).is_none_or(Value::is_string);
        let sizes = icon
            .get("sizes")
            .is_none_or(|sizes| sizes.as_array().is_some_and(|sizes| sizes.iter().all(Value::is_string)));
        let theme = icon.get("theme").is_none_or(|theme| theme == "light" || theme == "dark");
        let src = icon.get("src").and_then(Value::as_str).is_some_and(is_uri);
        if !(icon.is_object() && src && text("mimeType") && sizes && theme) {
            return Err(format!("[{index}] is not an icon of the specification"));
        }
    }
    Ok(())
}

/// An icon's `src` may be a `data:` URI, longer than a resource's URI may be.
fn is_uri(text: &str) -> bool {
    iri_string::types::UriStr::new(text).is_ok()
}

fn check_meta(value: &Value) -> Result<(), String> {
    if value.is_object() { Ok(()) } else { Err(" must be an object".to_owned()) }
}

/// A resource as it is shown: what was sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Resource)]
#[serde(rename_all = "camelCase")]
pub struct ResourceShown {
    #[schema(value_type = String)]
    uri: ResourceUri,
    #[serde(flatten)]
    definition: Definition,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<Vec<ContentShown>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContentShown)]
#[serde(rename_all = "camelCase")]
struct ContentShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    uri: Option<ResourceUri>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(flatten)]
    body: BodyShown,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BodyShown {
    Text(String),
    Blob(String),
}

impl ResourceShown {
    /// The definition alone, with its size.
    pub fn listed(resource: Resource) -> Self {
        let size = resource.size();
        Self { uri: resource.uri, definition: resource.definition, size, contents: None }
    }

    /// All of it, as `PUT` takes it.
    pub fn whole(resource: Resource, bytes: &BTreeMap<ContentHash, Bytes>) -> Self {
        let body = |kind, bytes: &[u8]| match kind {
            PartKind::Text => BodyShown::Text(String::from_utf8_lossy(bytes).into_owned()),
            PartKind::Blob => BodyShown::Blob(BASE64_STANDARD.encode(bytes)),
        };
        let contents = resource.parts.into_iter().map(|part| ContentShown {
            body: body(part.kind, bytes.get(&part.hash).map_or(&[], |bytes| &bytes[..])),
            uri: part.uri,
            mime_type: part.mime_type,
        });
        let contents = Some(contents.collect());
        Self { uri: resource.uri, definition: resource.definition, size: None, contents }
    }
}
