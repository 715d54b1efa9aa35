//! A kind of definition as JSON.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalog::definitions::Registered;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;

/// The size of the definition and of the JSON around the contents.
const ENVELOPE_BYTES: usize = 1024 * 1024;

/// The bounds of contents.
#[derive(Debug, Clone, Copy)]
pub struct ContentLimits {
    /// The maximum bytes of a resource's contents, or of a prompt's messages.
    pub content_bytes: usize,
    /// What a skill may have.
    pub skill: skill::Limits,
}

/// A kind of definition as sent to and returned by the administration API and in manifests.
pub(crate) trait Form: Registered {
    /// As sent.
    type Input: DeserializeOwned + Send;
    /// As returned: what was sent.
    type View: Serialize + Send;
    /// As it is in a manifest.
    type Exported: From<Self::View> + Serialize + Send;

    /// The maximum size of a definition as JSON.
    fn most_bytes(limits: ContentLimits) -> usize {
        // Every character of text may be escaped; base64 has four bytes for three.
        limits.content_bytes * 2 + ENVELOPE_BYTES
    }

    /// The key in the JSON, if it is there.
    fn sent_key(input: &Self::Input) -> Option<&str>;

    /// Validates everything that the types do not guarantee, except what [`Registered::check`] does. A key in the JSON must
    /// equal `key`.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], and [`Fault::PayloadTooLarge`] for contents over `content_bytes` together.
    fn validate(input: Self::Input, key: Self::Key, limits: ContentLimits) -> Result<Self::New, Fault>;

    /// The definition without contents.
    fn listed(self) -> Self::View;

    /// The definition with its contents, in the format of `PUT`.
    ///
    /// # Errors
    /// [`Fault::Internal`] if the stored contents cannot be parsed.
    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<Self::View, Fault>;

    /// The definition as it is in a manifest.
    ///
    /// # Errors
    /// Those of [`whole`](Self::whole).
    fn exported(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<Self::Exported, Fault> {
        Ok(self.whole(bytes)?.into())
    }
}

/// The bytes of a content.
pub(crate) fn content(bytes: &BTreeMap<ContentHash, Bytes>, hash: ContentHash) -> &[u8] {
    bytes.get(&hash).map_or(&[], |bytes| &bytes[..])
}
