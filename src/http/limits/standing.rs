//! What a caller has left, as it is told (draft-ietf-httpapi-ratelimit-headers).

use std::io::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::fault::{Fault, LimitScope, Limited};
use crate::model::limits::Rate;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Bytes of an item with the longest name and two numbers of 32 bits, at most.
const MOST_ITEM: usize = 48;

/// What is left to somebody of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Whose rate it is.
    pub scope: LimitScope,
    /// The rate.
    pub rate: Rate,
    /// Units that may be had at once now.
    pub left: u32,
}

impl Standing {
    /// The one of which less is left.
    pub(super) fn or_less(self, other: Self) -> Self {
        if other.left < self.left { other } else { self }
    }

    /// Adds what is left to the headers of an answer.
    pub fn tell(self, headers: &mut HeaderMap) {
        let reset = self.rate.seconds(self.rate.burst.get().saturating_sub(self.left)).into();
        tell_rate(self.scope, self.rate, self.left, reset, headers);
    }
}

/// Adds to the headers of a refusal what there is none of, and when there will be.
pub fn tell(fault: &Fault, headers: &mut HeaderMap) {
    let Fault::RateLimited { scope, limited, retry_after } = fault else { return };
    let wait = seconds(*retry_after);
    match limited {
        Limited::Rate(rate) => tell_rate(*scope, *rate, 0, wait, headers),
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

fn tell_rate(scope: LimitScope, rate: Rate, left: u32, reset: u64, headers: &mut HeaderMap) {
    let (scope, burst) = (scope.as_str(), rate.burst.get());
    let window = rate.seconds(burst);
    headers.insert(RATE_LIMIT_POLICY, item(scope, &[("q", burst.into()), ("w", window.into())]));
    headers.insert(RATE_LIMIT, item(scope, &[("r", left.into()), ("t", reset)]));
}

/// `"name";parameter=number;...`. Every answer carries two of these, so they are put together without `format!`.
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
