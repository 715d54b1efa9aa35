//! Refusals of exhausted limits: their faults, their header fields, and the value of `Retry-After`.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::limiter::{
    LimitRefusal, RATE_LIMIT, RATE_LIMIT_POLICY, policy_header, rate_limit_header, structured_item,
};
use crate::model::fault::Fault;
use crate::model::limits::{LimitScope, Limited};

/// The fault of a refusal. Only a batch can cost more than the burst: the configuration keeps every single request below it.
pub(super) fn refusal(scope: LimitScope, cost: u32, refused: LimitRefusal) -> Fault {
    match refused.wait {
        Some(retry_after) => Fault::RateLimited { scope, limited: Limited::Rate(refused.rate), retry_after },
        None => Fault::InvalidRequest(Cow::Owned(format!(
            "the batch costs {cost} units, the burst of this {} is {}; send it in parts",
            scope.as_str(),
            refused.rate.burst,
        ))),
    }
}

/// Adds `RateLimit` and `RateLimit-Policy` to the headers of a refusal: the exhausted rate, and when units are
/// available again.
pub fn write_refusal(fault: &Fault, headers: &mut HeaderMap) {
    let Fault::RateLimited { scope, limited, retry_after } = fault else { return };
    let wait = seconds(*retry_after);
    match limited {
        Limited::Rate(rate) => {
            headers.insert(RATE_LIMIT_POLICY, policy_header(*scope, *rate));
            headers.insert(RATE_LIMIT, rate_limit_header(scope.as_str(), 0, wait));
        }
        Limited::Streams(most) => {
            headers.insert(RATE_LIMIT_POLICY, structured_item("streams", &[("q", *most as u64)]));
            headers.insert(RATE_LIMIT, structured_item("streams", &[("r", 0), ("t", wait)]));
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
