//! The encoded contents of a resource, the same for every revision.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{Error, Serializer};
use serde_json::value::RawValue;

use crate::model::call::{Content, Contents};
use crate::model::resource::PartKind;

/// The approximate size of an encoded part without its URI, MIME type and bytes.
const PART_OVERHEAD: usize = 64;

/// The contents of a resource, ready to encode.
pub(super) struct EncodedContents<'a>(pub(super) &'a Contents);

impl EncodedContents<'_> {
    /// The approximate encoded size, so that the buffer grows once.
    pub(super) fn encoded_len(&self) -> usize {
        let uri = self.0.uri.as_str().len();
        self.0.parts.iter().map(|part| part.bytes.len() / 3 * 4 + uri + PART_OVERHEAD).sum()
    }
}

impl Serialize for EncodedContents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.parts.iter().map(|part| EncodedContent::of(self.0, part)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedContent<'a> {
    uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<Blob<'a>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

impl<'a> EncodedContent<'a> {
    fn of(contents: &'a Contents, part: &'a Content) -> Self {
        let (text, blob) = match part.kind {
            PartKind::Text => (Some(Text(&part.bytes)), None),
            PartKind::Blob => (None, Some(Blob(&part.bytes))),
        };
        let (uri, mime_type) = (contents.uri_of(part).as_str(), contents.mime_type_of(part));
        Self { uri, mime_type, text, blob, meta: part.meta.as_deref() }
    }
}

struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(self.0).map_err(|_| S::Error::custom("a text part is not UTF-8"))?;
        serializer.serialize_str(text)
    }
}

/// Data as base64.
pub(super) struct Blob<'a>(pub(super) &'a [u8]);

impl Serialize for Blob<'_> {
    /// Encodes directly into the output, without an intermediate string.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::EncodedContents;
    use crate::model::call::{Content, Contents};
    use crate::model::ids::ResourceUri;
    use crate::model::resource::PartKind;
    use crate::model::scope::Revision;

    proptest! {
        #[test]
        fn contents_are_encoded_unchanged(text: String, blob in prop::collection::vec(any::<u8>(), 0..5_000)) {
            let described = Content::text(Bytes::copy_from_slice(text.as_bytes()));
            let parts = vec![described, Content { kind: PartKind::Blob, ..Content::text(blob.clone().into()) }];
            let uri = ResourceUri::parse("a:b").unwrap();
            let contents = Contents { uri, mime_type: None, parts, revision: Revision(1), fresh_for: None };
            let encoded = serde_json::to_string(&EncodedContents(&contents)).unwrap();
            let expected = json!([{"uri": "a:b", "text": text}, {"uri": "a:b", "blob": STANDARD.encode(&blob)}]);
            prop_assert_eq!(serde_json::from_str::<Value>(&encoded).unwrap(), expected);
        }
    }
}
