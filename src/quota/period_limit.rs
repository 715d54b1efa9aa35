//! The quota of one period.

use crate::model::limits::UseLimits;
use crate::model::quota::Period;

/// The maximum numbers of calls and bytes in a period; `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeriodLimit {
    pub(super) calls: Option<i64>,
    pub(super) bytes: Option<i64>,
}

impl PeriodLimit {
    pub(super) fn of(limits: &UseLimits, period: Period) -> Self {
        let (calls, bytes) = match period {
            Period::Day => (limits.calls_per_day, limits.bytes_per_day),
            Period::Month => (limits.calls_per_month, limits.bytes_per_month),
        };
        let stored = |most: Option<u64>| most.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        Self { calls: stored(calls), bytes: stored(bytes) }
    }

    pub(super) fn is_none(self) -> bool {
        self.calls.is_none() && self.bytes.is_none()
    }
}
