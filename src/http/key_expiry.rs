//! `Waggle-Key-Expires`: tells whoever shows a key that it will soon be refused.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::model::caller::CredentialKind;
use crate::registry::access::Grant;

const WAGGLE_KEY_EXPIRES: HeaderName = HeaderName::from_static("waggle-key-expires");

/// From when on it is told.
const SOON: Duration = Duration::days(14);

/// When the key of a request expires, once that is known and soon.
#[derive(Debug, Default)]
pub struct KeyExpiry(OnceLock<OffsetDateTime>);

impl KeyExpiry {
    /// Notes what a request showed. Tokens always end soon, and whoever has one knows when.
    pub fn note(&self, grant: Option<&Grant>, now: impl FnOnce() -> OffsetDateTime) {
        let keys = grant.filter(|grant| grant.credential.kind != CredentialKind::Token);
        let end = keys.and_then(|grant| grant.credential.expires_at);
        if let Some(end) = end.filter(|end| *end - now() <= SOON) {
            self.0.get_or_init(|| end);
        }
    }

    /// Adds the header to the answer, where there is something to tell.
    pub fn tell(&self, headers: &mut HeaderMap) {
        let end = self.0.get().and_then(|end| end.format(&Rfc3339).ok());
        if let Some(end) = end.and_then(|end| HeaderValue::try_from(end).ok()) {
            headers.insert(WAGGLE_KEY_EXPIRES, end);
        }
    }
}
