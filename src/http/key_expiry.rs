//! `Waggle-Key-Expires`: announces the expiry of the presented key.

use http::{HeaderMap, HeaderName, HeaderValue};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::identity::grant::Grant;
use crate::model::caller::CredentialKind;

const WAGGLE_KEY_EXPIRES: HeaderName = HeaderName::from_static("waggle-key-expires");

/// How long before its expiry a key is announced to expire.
const NOTICE: Duration = Duration::days(14);

/// The expiry of a presented key, if it must be announced. Access tokens are short-lived, and their holders know until when.
pub fn soon(grant: Option<&Grant>, now: impl FnOnce() -> OffsetDateTime) -> Option<OffsetDateTime> {
    let key = grant.filter(|grant| grant.credential.kind != CredentialKind::Token);
    let end = key.and_then(|grant| grant.credential.expires_at);
    end.filter(|end| *end - now() <= NOTICE)
}

/// Adds the header to an answer.
pub fn announce(end: OffsetDateTime, headers: &mut HeaderMap) {
    let end = end.format(&Rfc3339).ok();
    if let Some(end) = end.and_then(|end| HeaderValue::try_from(end).ok()) {
        headers.insert(WAGGLE_KEY_EXPIRES, end);
    }
}
