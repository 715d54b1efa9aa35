//! How much somebody may use: a rate, and quotas of a day and of a month.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Units that may be had at once, and how many of them come back in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Units that come back in a second.
    pub per_second: NonZeroU32,
    /// Units that may be had at once.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Most units a second, and at once, that a rate may have.
    pub const MOST: u32 = 1_000_000;

    /// A rate; `None` where nothing comes back, by which one turns it off.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        Some(Self { per_second, burst: NonZeroU32::new(burst).unwrap_or(per_second) })
    }

    /// In how many seconds, rounded up, `units` come back.
    pub fn seconds(self, units: u32) -> u32 {
        units.div_ceil(self.per_second.get())
    }
}

/// What differs for one key, agent or tenant from the rate of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimit {
    /// Units that come back in a second; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// Units that may be had at once; twice those of a second unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
}

/// What one agent or tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UseLimits {
    /// Units that come back in a second; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// Units that may be had at once; twice those of a second unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
    /// Requests of a day, in UTC, over all replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_day: Option<u64>,
    /// Requests of a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_month: Option<u64>,
    /// Bytes of the bodies of a day, in and out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_day: Option<u64>,
    /// Bytes of a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_month: Option<u64>,
}

impl UseLimits {
    /// Whether there is anything that is used up.
    pub fn has_quota(&self) -> bool {
        let quotas = [self.calls_per_day, self.calls_per_month, self.bytes_per_day, self.bytes_per_month];
        quotas.iter().any(Option::is_some)
    }

    /// The part of it that is a rate.
    pub fn rate(&self) -> RateLimit {
        RateLimit { per_second: self.per_second, burst: self.burst }
    }
}

impl RateLimit {
    /// The rate that is in force where the settings say `default`; `None` for no limit.
    pub fn over(self, default: Option<Rate>) -> Option<Rate> {
        match (self.per_second, self.burst) {
            (None, None) => default,
            (None, Some(burst)) => default.and_then(|rate| Rate::new(rate.per_second.get(), burst)),
            (Some(per_second), burst) => {
                Rate::new(per_second, burst.unwrap_or_else(|| per_second.saturating_mul(2)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, RateLimit};

    #[test]
    fn what_is_given_stands_over_the_default() {
        let default = Rate::new(200, 400);
        let over = |per_second, burst| RateLimit { per_second, burst }.over(default);
        assert_eq!(over(None, None), default);
        assert_eq!(over(Some(10), None), Rate::new(10, 20));
        assert_eq!(over(Some(10), Some(5)), Rate::new(10, 5));
        assert_eq!(over(None, Some(5)), Rate::new(200, 5));
        assert_eq!(over(Some(0), Some(5)), None);
        assert_eq!(RateLimit { per_second: None, burst: Some(5) }.over(None), None);
    }

    #[test]
    fn units_come_back_in_whole_seconds() {
        let rate = Rate::new(3, 10).unwrap();
        assert_eq!([0, 1, 3, 4].map(|units| rate.seconds(units)), [0, 1, 1, 2]);
    }
}
