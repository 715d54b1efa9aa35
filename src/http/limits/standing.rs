//! What a caller has left, as it is told (draft-ietf-httpapi-ratelimit-headers).

use std::io::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::fault::{Fault, LimitScope, Limited};
use crate::model::limits::Rate;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Bytes that no item exceeds: the longest name in quotation marks, and two parameters with numbers of 20 digits.
const MOST_ITEM: usize = 64;

/// What is left to somebody of a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose rate it is.
    pub scope: LimitScope,
    /// The rate.
    pub rate: Rate,
    /// Units that may be had at once now.
    pub left: u32,
    /// The rate as it is told.
    pub(super) policy: HeaderValue,
}

impl Standing {
    /// Adds what is left to the headers of an answer.
    pub fn tell(self, headers: &mut HeaderMap) {
        let reset = self.rate.seconds(self.rate.burst.get().saturating_sub(self.left)).into();
        headers.insert(RATE_LIMIT_POLICY, self.policy);
        headers.insert(RATE_LIMIT, left_of(self.scope, self.left, reset));
    }
}

/// A rate as it is told.
pub(super) fn policy(scope: LimitScope, rate: Rate) -> HeaderValue {
    let burst = rate.burst.get();
    item(scope.as_str(), &[("q", burst.into()), ("w", rate.seconds(burst).into())])
}

fn left_of(scope: LimitScope, left: u32, reset: u64) -> HeaderValue {
    item(scope.as_str(), &[("r", left.into()), ("t", reset)])
}

/// Adds to the headers of a refusal what there is none of, and when there will be.
pub fn tell(fault: &Fault, headers: &mut HeaderMap) {
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

/// `Retry-After`: whole seconds, rounded up, lest one comes back too early.
pub fn retry_after(wait: Duration) -> HeaderValue {
    HeaderValue::from(seconds(wait))
}

fn seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// `"name";parameter=number;...`. Every answer carries one that no other does, so it is put together without `format!`.
fn item(name: &str, parameters: &[(&str, u64)]) -> HeaderValue {
    let mut text = [0; MOST_ITEM];
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
    let written = put_all().map(|()| MOST_ITEM - rest.len());
    let text = written.ok().and_then(|length| text.get(..length));
    text.and_then(|text| HeaderValue::from_bytes(text).ok()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::item;
    use crate::model::fault::LimitScope;

    #[test]
    fn there_is_room_for_the_longest_name_and_the_largest_numbers() {
        for name in LimitScope::ALL.map(LimitScope::as_str).into_iter().chain(["streams"]) {
            let expected = format!("\"{name}\";q={0};w={0}", u64::MAX);
            assert_eq!(item(name, &[("q", u64::MAX), ("w", u64::MAX)]), expected);
        }
    }
}
