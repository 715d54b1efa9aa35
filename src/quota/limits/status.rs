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

/// A rate, and its name and value in header fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RatePolicy {
    /// The name of the scope of the rate.
    name: &'static str,
    rate: Rate,
    /// `RateLimit-Policy`.
    header: HeaderValue,
}

impl RatePolicy {
    pub(super) fn new(scope: LimitScope, rate: Rate, header: HeaderValue) -> Self {
        Self { name: scope.as_str(), rate, header }
    }
}

/// The state of a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub(super) policy: RatePolicy,
    /// Units that are left now.
    pub(super) left: u32,
}

impl RateLimitStatus {
    /// Adds `RateLimit` and `RateLimit-Policy` to the headers of an answer, unless it is a refusal, which has those of the
    /// exceeded limit.
    pub fn write(self, headers: &mut HeaderMap) {
        if headers.contains_key(RATE_LIMIT) {
            return;
        }
        let RatePolicy { name, rate, header } = self.policy;
        let reset = seconds_to_restore(rate.burst.get().saturating_sub(self.left), rate).into();
        headers.insert(RATE_LIMIT_POLICY, header);
        headers.insert(RATE_LIMIT, left_of(name, self.left, reset));
    }
}

/// The time in which units are restored at a rate, in seconds, rounded up.
pub(super) fn seconds_to_restore(units: u32, rate: Rate) -> u32 {
    units.div_ceil(rate.per_second.get())
}

/// `RateLimit-Policy` of a rate.
pub(super) fn policy_header(scope: LimitScope, rate: Rate) -> HeaderValue {
    let burst = rate.burst.get();
    item(scope.as_str(), &[("q", burst.into()), ("w", seconds_to_restore(burst, rate).into())])
}

/// The policies of the default rates, which most callers have.
#[derive(Debug)]
pub(super) struct DefaultPolicies(
    /// By [`LimitScope`].
    [Option<RatePolicy>; LimitScope::ALL.len()],
);

impl DefaultPolicies {
    pub(super) fn new(default_rate: impl Fn(LimitScope) -> Option<Rate>) -> Self {
        Self(LimitScope::ALL.map(|scope| {
            default_rate(scope).map(|rate| RatePolicy::new(scope, rate, static_policy_header(scope, rate)))
        }))
    }

    /// That of a rate, if it is the default of its scope.
    pub(super) fn get(&self, scope: LimitScope, rate: Rate) -> Option<RatePolicy> {
        self.0.get(scope as usize)?.as_ref().filter(|policy| policy.rate == rate).cloned()
    }
}

/// As [`policy_header`], in memory for as long as the process runs, so that no answer counts references to it, which would
/// take it from the other threads.
fn static_policy_header(scope: LimitScope, rate: Rate) -> HeaderValue {
    let policy = policy_header(scope, rate);
    match policy.to_str().map(str::to_owned) {
        Ok(text) => HeaderValue::from_static(text.leak()),
        Err(_) => policy,
    }
}

fn left_of(name: &str, left: u32, reset: u64) -> HeaderValue {
    item(name, &[("r", left.into()), ("t", reset)])
}

/// Adds `RateLimit` and `RateLimit-Policy` to the headers of a refusal: the exhausted rate, and when units are
/// available again.
pub fn write_refusal(fault: &Fault, headers: &mut HeaderMap) {
    let Fault::RateLimited { scope, limited, retry_after } = fault else { return };
    let wait = seconds(*retry_after);
    match limited {
        Limited::Rate(rate) => {
            headers.insert(RATE_LIMIT_POLICY, policy_header(*scope, *rate));
            headers.insert(RATE_LIMIT, left_of(scope.as_str(), 0, wait));
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
    use super::{DefaultPolicies, RatePolicy, item, policy_header, seconds_to_restore};
    use crate::model::limits::{LimitScope, Rate};

    #[test]
    fn longest_name_and_largest_numbers_fit() {
        for name in LimitScope::ALL.map(LimitScope::as_str).into_iter().chain(["streams"]) {
            let expected = format!("\"{name}\";q={0};w={0}", u64::MAX);
            assert_eq!(item(name, &[("q", u64::MAX), ("w", u64::MAX)]), expected);
        }
    }

    #[test]
    fn refill_time_is_rounded_up_to_seconds() {
        let rate = Rate::new(3, 10).unwrap();
        assert_eq!([0, 1, 3, 4].map(|units| seconds_to_restore(units, rate)), [0, 1, 1, 2]);
    }

    #[test]
    fn default_policy_is_that_of_its_scope_and_rate() {
        let default = |scope| Rate::new(1, 10 + scope as u32);
        let policies = DefaultPolicies::new(default);
        for scope in LimitScope::ALL {
            let rate = default(scope).unwrap();
            let policy = policies.get(scope, rate).unwrap();
            assert_eq!(policy, RatePolicy::new(scope, rate, policy_header(scope, rate)));
            assert_eq!(policies.get(scope, Rate::new(2, 10).unwrap()), None);
        }
    }
}
