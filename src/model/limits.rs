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

    /// Whether a rate allows more than another, `None` being no limit.
    pub fn exceeds(rate: Option<Self>, most: Option<Self>) -> bool {
        match (rate, most) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(rate), Some(most)) => rate.per_second > most.per_second || rate.burst > most.burst,
        }
    }

    /// The tighter of two rates, `None` being no limit.
    pub fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self {
                per_second: one.per_second.min(other.per_second),
                burst: one.burst.min(other.burst),
            }),
            (rate, None) | (None, rate) => rate,
        }
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
    /// What strangers to a public agent may use in addition to each of these quotas, in percent of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000)]
    pub strangers_percent: Option<u16>,
}

impl UseLimits {
    /// The largest part of a quota that strangers may have, in percent.
    pub const MOST_STRANGERS_PERCENT: u16 = 1_000;

    /// The quotas of strangers, where the settings give them so many percent.
    #[must_use]
    pub fn of_strangers(self, percent: u16) -> Self {
        let percent = u128::from(self.strangers_percent.unwrap_or(percent));
        let part = |quota: Option<u64>| {
            quota.map(|quota| u64::try_from(u128::from(quota) * percent / 100).unwrap_or(u64::MAX))
        };
        Self {
            calls_per_day: part(self.calls_per_day),
            calls_per_month: part(self.calls_per_month),
            bytes_per_day: part(self.bytes_per_day),
            bytes_per_month: part(self.bytes_per_month),
            ..self
        }
    }

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

impl From<Rate> for RateLimit {
    fn from(rate: Rate) -> Self {
        Self { per_second: Some(rate.per_second.get()), burst: Some(rate.burst.get()) }
    }
}

/// What differs for one key, by who set it. The tighter of both is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyLimits {
    /// Set by the operator, who may set more than the settings give.
    pub operator: RateLimit,
    /// Set by an owner key.
    pub owner: RateLimit,
}

impl KeyLimits {
    /// The rate without the owner's part, where the settings say `default`.
    pub fn ceiling(self, default: Option<Rate>) -> Option<Rate> {
        self.operator.over(default)
    }

    /// The rate that is in force where the settings say `default`; `None` for no limit.
    pub fn over(self, default: Option<Rate>) -> Option<Rate> {
        let ceiling = self.ceiling(default);
        Rate::tighter(ceiling, self.owner.over(ceiling))
    }

    /// Both parts as one limit.
    pub fn combined(self) -> RateLimit {
        let Self { operator, owner } = self;
        if operator == RateLimit::default() || owner == RateLimit::default() {
            return if owner == RateLimit::default() { operator } else { owner };
        }
        let least = |one: Option<u32>, other: Option<u32>| one.into_iter().chain(other).min();
        let unlimited = |limit: &RateLimit| limit.per_second == Some(0);
        match (unlimited(&operator), unlimited(&owner)) {
            (true, _) => owner,
            (false, true) => operator,
            (false, false) => RateLimit {
                per_second: least(operator.per_second, owner.per_second),
                burst: least(operator.most_at_once(), owner.most_at_once()),
            },
        }
    }
}

impl RateLimit {
    /// The burst that it sets, given or implied.
    fn most_at_once(self) -> Option<u32> {
        self.burst.or(self.per_second.map(|per_second| per_second.saturating_mul(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyLimits, Rate, RateLimit, UseLimits};

    fn limit(per_second: impl Into<Option<u32>>, burst: impl Into<Option<u32>>) -> RateLimit {
        RateLimit { per_second: per_second.into(), burst: burst.into() }
    }

    #[test]
    fn the_tighter_of_operator_and_owner_limits_is_in_force() {
        let (default, none) = (Rate::new(200, 400), RateLimit::default());
        for (operator, owner, rate, combined) in [
            (none, none, default, none),
            (limit(1_000, None), none, Rate::new(1_000, 2_000), limit(1_000, None)),
            (none, limit(50, None), Rate::new(50, 100), limit(50, None)),
            (limit(100, 100), limit(50, None), Rate::new(50, 100), limit(50, 100)),
            (limit(50, 60), limit(100, 10), Rate::new(50, 10), limit(50, 10)),
            (limit(50, None), limit(None, 10), Rate::new(50, 10), limit(50, 10)),
            (limit(0, None), limit(50, None), Rate::new(50, 100), limit(50, None)),
            (limit(50, None), limit(0, None), Rate::new(50, 100), limit(50, None)),
            // The settings were lowered after the owner had set its limit.
            (none, limit(300, 600), default, limit(300, 600)),
        ] {
            let limits = KeyLimits { operator, owner };
            assert_eq!(limits.over(default), rate, "{limits:?}");
            assert_eq!(limits.combined(), combined, "{limits:?}");
        }
    }

    #[test]
    fn strangers_have_their_percentage_of_each_quota() {
        let own =
            UseLimits { calls_per_day: Some(260), bytes_per_month: Some(u64::MAX), ..UseLimits::default() };
        let part = own.of_strangers(10);
        assert_eq!((part.calls_per_day, part.calls_per_month), (Some(26), None));
        assert_eq!(own.of_strangers(1_000).bytes_per_month, Some(u64::MAX));
        let set = UseLimits { strangers_percent: Some(0), ..own };
        assert_eq!(set.of_strangers(10).calls_per_day, Some(0), "what is set counts, not the settings");
    }

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
