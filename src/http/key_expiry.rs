//! `Waggle-Key-Expires`, the header that announces the expiry of the presented key.

use http::{HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::identity::grant::Grant;
use crate::model::caller::CredentialKind;

const WAGGLE_KEY_EXPIRES: HeaderName = HeaderName::from_static("waggle-key-expires");

/// How long before its expiry a key is announced to expire.
const NOTICE: time::Duration = time::Duration::days(14);

/// The expiry of a presented key, if it must be announced. That of a token is in the token.
pub(super) fn expiry_to_announce(
    grant: Option<&Grant>,
    now: impl FnOnce() -> OffsetDateTime,
) -> Option<OffsetDateTime> {
    let key = grant.filter(|grant| grant.credential.kind != CredentialKind::Token);
    let end = key.and_then(|grant| grant.credential.expires_at);
    end.filter(|end| *end - now() <= NOTICE)
}

/// Adds the header to an answer.
pub fn announce_expiry(end: OffsetDateTime, headers: &mut HeaderMap) {
    let end = end.format(&Rfc3339).ok();
    if let Some(end) = end.and_then(|end| HeaderValue::try_from(end).ok()) {
        headers.insert(WAGGLE_KEY_EXPIRES, end);
    }
}
