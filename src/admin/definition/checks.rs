//! Validation of members that several kinds of definitions share.

use std::sync::Arc;

use base64::prelude::BASE64_STANDARD;
use base64::{DecodeError, Engine};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use crate::admin::malformed;
use crate::model::fault::Fault;
use crate::model::json;
use crate::model::place::{SourcePlace, SourceText};
use crate::model::resource::{Definition, parse_mime};

/// Bytes of `annotations`, `icons`, `_meta` and `completions`, each.
pub(crate) const MAX_RAW: usize = 64 * 1024;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $called:literal, $range:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize, ToSchema)]
        #[serde(try_from = "String")]
        pub(crate) struct $name(String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let range: std::ops::RangeInclusive<usize> = $range;
                let (least, most) = (range.start(), range.end());
                if text.contains('\0') {
                    Err(concat!($called, " contains a NUL character").to_owned())
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

/// The common members of a resource and a resource template.
#[derive(Debug)]
pub(crate) struct DefinitionInput {
    pub(crate) name: Name,
    pub(crate) title: Option<Name>,
    pub(crate) description: Option<Description>,
    pub(crate) mime_type: Option<MimeText>,
    pub(crate) annotations: Option<Box<RawValue>>,
    pub(crate) icons: Option<Box<RawValue>>,
    pub(crate) meta: Option<Box<RawValue>>,
}

impl DefinitionInput {
    /// Validates everything that the types do not guarantee.
    pub(crate) fn check(self) -> Result<Definition, Fault> {
        Ok(Definition {
            name: self.name.into(),
            title: self.title.map(Name::into),
            description: self.description.map(Description::into),
            mime_type: self.mime_type.map(|mime| checked_mime("mimeType", mime)).transpose()?,
            annotations: annotations("annotations", self.annotations)?,
            icons: icons("icons", self.icons)?,
            meta: meta("_meta", self.meta)?,
        })
    }
}

/// Validates a MIME type and returns it as sent.
pub(crate) fn checked_mime(field: &str, mime: MimeText) -> Result<String, Fault> {
    // The parser accepts ranges such as `*/*`.
    let names_one = |parsed: mime::Mime| {
        ![parsed.type_(), parsed.subtype()].iter().any(|half| *half == "" || *half == "*")
    };
    if parse_mime(&mime.0).is_some_and(names_one) {
        Ok(mime.0)
    } else {
        Err(Fault::invalid_params(format!("{field} is not a MIME type")))
    }
}

/// Validates base64 that is stored as sent.
pub(crate) fn check_base64(field: &str, text: &str) -> Result<(), Fault> {
    decoded(field, text).map(drop)
}

/// Decodes base64.
pub(crate) fn decoded(field: &str, text: &str) -> Result<Vec<u8>, Fault> {
    BASE64_STANDARD.decode(text).map_err(|error| {
        let why = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
                format!(" at byte {at}")
            }
            DecodeError::InvalidLength(_) => format!(": {} characters are not a multiple of 4", text.len()),
            DecodeError::InvalidPadding => ": expected = at its end".to_owned(),
        };
        Fault::invalid_params(format!("{field}: not base64{why}; expected the standard alphabet of RFC 4648"))
    })
}

/// Validates text that the database can store.
pub(crate) fn check_text(field: &str, text: &str) -> Result<(), Fault> {
    if text.contains('\0') {
        return Err(Fault::invalid_params(format!("{field} contains a NUL character")));
    }
    Ok(())
}

/// `Annotations` of the specification, as sent.
pub(crate) fn annotations(field: &str, sent: Option<Box<RawValue>>) -> Result<Option<Box<RawValue>>, Fault> {
    raw(field, sent, check_annotations)
}

/// Icons of the specification, as sent.
pub(crate) fn icons(field: &str, sent: Option<Box<RawValue>>) -> Result<Option<Box<RawValue>>, Fault> {
    raw(field, sent, check_icons)
}

/// `_meta`, as sent.
pub(crate) fn meta(field: &str, sent: Option<Box<RawValue>>) -> Result<Option<Box<RawValue>>, Fault> {
    raw(field, sent, check_meta)
}

/// Where the content of a definition is, if that is not in the definition.
pub(crate) fn source(sent: Option<Box<RawValue>>) -> Result<Option<Arc<SourcePlace>>, Fault> {
    let Some(raw) = sent.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let value =
        json::check(&raw, MAX_RAW).map_err(|error| Fault::invalid_params(format!("source {error}")))?;
    let read = serde_path_to_error::deserialize::<_, json::Object<SourceText>>(value);
    let json::Object(text) = read.map_err(|found| malformed::within("source", found))?;
    SourcePlace::new(text).map(Arc::new).map(Some)
}

fn raw(
    field: &str,
    raw: Option<Box<RawValue>>,
    check: fn(&Value) -> Result<(), String>,
) -> Result<Option<Box<RawValue>>, Fault> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let value =
        json::check(&raw, MAX_RAW).map_err(|error| Fault::invalid_params(format!("{field} {error}")))?;
    check(&value).map_err(|wrong| Fault::invalid_params(format!("{field}{wrong}")))?;
    Ok(Some(raw))
}

/// `Annotations` of the specification's schema.
fn check_annotations(value: &Value) -> Result<(), String> {
    let members = value.as_object().ok_or(" must be an object")?;
    for (name, value) in members {
        let (good, expected) = match name.as_str() {
            "audience" => {
                let is_role = |role: &Value| matches!(role.as_str(), Some("user" | "assistant"));
                let good = value.as_array().is_some_and(|audience| audience.iter().all(is_role));
                (good, "a list of `user` and `assistant`")
            }
            "priority" => {
                let good = value.as_f64().is_some_and(|priority| (0.0..=1.0).contains(&priority));
                (good, "a number from 0 to 1")
            }
            "lastModified" => {
                let good = value.as_str().is_some_and(|at| OffsetDateTime::parse(at, &Rfc3339).is_ok());
                (good, "a time such as 2027-01-31T12:00:00Z")
            }
            _ => return Err(format!(": unknown member `{name}`")),
        };
        if !good {
            return Err(format!(".{name} must be {expected}"));
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
        let src = icon.get("src").and_then(Value::as_str);
        if !(icon.is_object() && src.is_some_and(is_uri) && text("mimeType") && sizes && theme) {
            return Err(format!("[{index}] is not an icon as the specification defines"));
        }
        if !src.is_some_and(is_image_uri) {
            return Err(format!("[{index}].src must be an http, https or data URI"));
        }
    }
    Ok(())
}

/// Not `ResourceUri::parse`, which limits the length: the `src` of an icon may be a long `data:` URI.
fn is_uri(text: &str) -> bool {
    iri_string::types::UriStr::new(text).is_ok()
}

/// Whether clients may load an image from the URI; they must refuse others, such as `javascript:`.
fn is_image_uri(uri: &str) -> bool {
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        ["https", "http", "data"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    })
}

fn check_meta(value: &Value) -> Result<(), String> {
    if value.is_object() { Ok(()) } else { Err(" must be an object".to_owned()) }
}
