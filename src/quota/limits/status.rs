//! The rate limit status of a caller and its header fields: `RateLimit`, `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers) and `Retry-After`.

use std::io::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::fault::Fault;
use crate::model::limits::{LimitScope, Limited, Rate};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The maximum length of an item: the longest name in quotation marks, and two parameters with numbers of 20 digits.
const MAX_ITEM: usize = 64;

/// The state of a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// The scope of the rate.
    pub scope: LimitScope,
    /// The rate.
    pub rate: Rate,
    /// Units that are left now.
    pub left: u32,
    /// `RateLimit-Policy` of the rate.
    pub(super) policy: HeaderValue,
}

impl RateLimitStatus {
    /// Adds `RateLimit` and `RateLimit-Policy` to the headers of an answer, unless it is a refusal, which has those of the
    /// exceeded limit.
    pub fn write(self, headers: &mut HeaderMap) {
        if headers.contains_key(RATE_LIMIT) {
            return;
        }
        let reset = self.rate.seconds(self.rate.burst.get().saturating_sub(self.left)).into();
        headers.insert(RATE_LIMIT_POLICY, self.policy);
        headers.insert(RATE_LIMIT, left_of(self.scope, self.left, reset));
    }
}

/// `RateLimit-Policy` of a rate.
pub(super) fn policy(scope: LimitScope, rate: Rate) -> HeaderValue {
    let burst = rate.burst.get();
    item(scope.as_str(), &[("q", burst.into()), ("w", rate.seconds(burst).into())])
}

/// As [`policy`], for a rate of most callers: in memory for as long as the process runs, so that no answer counts references
/// to it, which would take it from the other threads.
pub(super) fn static_policy(scope: LimitScope, rate: Rate) -> HeaderValue {
    let policy = policy(scope, rate);
    match policy.to_str().map(str::to_owned) {
        Ok(text) => HeaderValue::from_static(text.leak()),
        Err(_) => policy,
    }
}

fn left_of(scope: LimitScope, left: u32, reset: u64) -> HeaderValue {
    item(scope.as_str(), &[("r", left.into()), ("t", reset)])
}

/// Adds `RateLimit` and `RateLimit-Policy` to the headers of a refusal: the exhausted rate, and when units are
/// available again.
pub fn write_refusal(fault: &Fault, headers: &mut HeaderMap) {
    let Fault::RateLimited { scope, limited, retry_after } = fault else { return };
    let wait = seconds(*retry_after);
    match limited {
        Limited::Rate(rate) => {
            headers.insert(RATE_LIMIT_POLICY, policy(*scope, *rate));
            headers.insert(RATE_LIMIT, left_of(*scope, 0, wait));
        }
        Limited::Streams(most) => {
            headers.insert(RATE_LIMIT_POLICY, item("streams", &[("q", *most as u64)]));
            headers.insert(RATE_LIMIT, item("streams", &[("r", 0), ("t", wait)]));
        }
    }
}

/// When to retry after a refusal (`Retry-After`): whole seconds, rounded up, so that no retry is too early.
pub fn retry_after(wait: Duration) -> HeaderValue {
    HeaderValue::from(seconds(wait))
}

fn seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// `"name";parameter=number;...`. Written without `format!`, since every answer carries one.
fn item(name: &str, parameters: &[(&str, u64)]) -> HeaderValue {
    let mut text = [0; MAX_ITEM];
    let mut rest = text.as_mut_slice();
    let mut put = |piece: &str| rest.write_all(piece.as_bytes());
    let mut put_all = || {
        put("\"")?;
        put(name)?;
        put("\"")?;
        parameters.iter().try_for_each(|(name, number)| {
            put(";")?;
            put(name)?;
            put("=")?;
            put(itoa::Buffer::new().format(*number))
        })
    };
    let written = put_all().map(|()| MAX_ITEM - rest.len());
    let text = written.ok().and_then(|length| text.get(..length));
    text.and_then(|text| HeaderValue::from_bytes(text).ok()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::item;
    use crate::model::limits::LimitScope;

    #[test]
    fn longest_name_and_largest_numbers_fit() {
        for name in LimitScope::ALL.map(LimitScope::as_str).into_iter().chain(["streams"]) {
            let expected = format!("\"{name}\";q={0};w={0}", u64::MAX);
            assert_eq!(item(name, &[("q", u64::MAX), ("w", u64::MAX)]), expected);
        }
    }
}
