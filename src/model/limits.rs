//! Rates and quotas: what they apply to, which of them was exceeded, and the usage that counts against them.

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::ids::AgentId;

/// A rate: a token bucket of `burst` units that is refilled at `per_second`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units refilled per second.
    pub per_second: NonZeroU32,
    /// Capacity in units.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Maximum of both values.
    pub const MAX: u32 = 1_000_000;

    /// A rate; `None` if `per_second` is 0, which means no limit. A burst of 0 means that of `per_second`.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        Some(Self { per_second, burst: NonZeroU32::new(burst).unwrap_or(per_second) })
    }

    /// Whether a rate exceeds another; `None` is no limit.
    pub fn exceeds(rate: Option<Self>, most: Option<Self>) -> bool {
        match (rate, most) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(rate), Some(most)) => rate.per_second > most.per_second || rate.burst > most.burst,
        }
    }

    /// The lower of two rates in both values; `None` is no limit.
    pub fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self {
                per_second: one.per_second.min(other.per_second),
                burst: one.burst.min(other.burst),
            }),
            (rate, None) | (None, rate) => rate,
        }
    }
}

/// A rate set for one key, agent or tenant, overriding the default of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RateLimit {
    /// Units refilled per second; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// Maximum burst in units; by default twice `perSecond`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
}

/// The limits of an agent or a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UseLimits {
    /// Units refilled per second; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// Maximum burst in units; by default twice `perSecond`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
    /// Requests per day (UTC), over all replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_day: Option<u64>,
    /// Requests per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_month: Option<u64>,
    /// Bytes of request and response bodies per day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_day: Option<u64>,
    /// Bytes of request and response bodies per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_month: Option<u64>,
    /// Additional quota for anonymous callers of a public agent, in percent of each quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000)]
    pub strangers_percent: Option<u16>,
}

impl UseLimits {
    /// Maximum of [`strangers_percent`](Self::strangers_percent).
    pub const MAX_STRANGERS_PERCENT: u16 = 1_000;

    /// The quotas of anonymous callers; `percent` is the default of the settings.
    #[must_use]
    pub fn of_anonymous(self, percent: u16) -> Self {
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

    /// Whether there is any quota.
    pub fn has_quota(&self) -> bool {
        let quotas = [self.calls_per_day, self.calls_per_month, self.bytes_per_day, self.bytes_per_month];
        quotas.iter().any(Option::is_some)
    }

    /// The part that is a rate.
    pub fn rate(&self) -> RateLimit {
        RateLimit { per_second: self.per_second, burst: self.burst }
    }
}

impl RateLimit {
    /// The effective rate, given the default of the settings; `None` for no limit.
    pub fn effective(self, default: Option<Rate>) -> Option<Rate> {
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

/// Rates set for one key. The lower one applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyLimits {
    /// Set by the operator, and may exceed the default.
    pub operator: RateLimit,
    /// Set by an owner key.
    pub owner: RateLimit,
}

impl KeyLimits {
    /// The rate without the owner's part, given the default of the settings.
    pub fn ceiling(self, default: Option<Rate>) -> Option<Rate> {
        self.operator.effective(default)
    }

    /// The effective rate, given the default of the settings; `None` for no limit.
    pub fn effective(self, default: Option<Rate>) -> Option<Rate> {
        let ceiling = self.ceiling(default);
        Rate::tighter(ceiling, self.owner.effective(ceiling))
    }

    /// Both parts combined into one limit.
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
    /// The burst, given or implied.
    fn most_at_once(self) -> Option<u32> {
        self.burst.or(self.per_second.map(|per_second| per_second.saturating_mul(2)))
    }
}

/// What a limit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// One key.
    Key,
    /// One agent.
    Agent,
    /// One tenant.
    Tenant,
    /// One client address.
    Address,
}

impl LimitScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Key, Self::Agent, Self::Tenant, Self::Address];

    /// The value of `data.scope`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Tenant => "tenant",
            Self::Address => "address",
        }
    }
}

/// A limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// The rate of requests.
    Rate(Rate),
    /// The number of open streams.
    Streams(usize),
}

impl std::fmt::Display for Limited {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => {
                let plural = if rate.per_second.get() == 1 { "" } else { "s" };
                write!(formatter, "rate limit exceeded: {} request{plural}/s", rate.per_second)
            }
            Self::Streams(most) => {
                let plural = if *most == 1 { "" } else { "s" };
                write!(formatter, "stream limit exceeded: {most} stream{plural}")
            }
        }
    }
}

/// Usage within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Requests.
    pub calls: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were refused because of a limit, a quota or a missing scope.
    pub denied: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of response bodies.
    pub bytes_out: u64,
}

/// Usage of an agent by one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The agent.
    pub agent: AgentId,
    /// Start of the hour or day.
    pub at: OffsetDateTime,
    /// The method.
    pub method: Cow<'static, str>,
    /// The counters.
    pub usage: Usage,
}

/// The interval by which usage is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageInterval {
    /// By hour.
    #[default]
    Hour,
    /// By day (UTC).
    Day,
}

impl UsageInterval {
    /// The argument of `date_trunc`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyLimits, Rate, RateLimit, UseLimits};

    fn limit(per_second: impl Into<Option<u32>>, burst: impl Into<Option<u32>>) -> RateLimit {
        RateLimit { per_second: per_second.into(), burst: burst.into() }
    }

    #[test]
    fn lower_of_operator_and_owner_limits_applies() {
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
            // The default was lowered after the owner had set its limit.
            (none, limit(300, 600), default, limit(300, 600)),
        ] {
            let limits = KeyLimits { operator, owner };
            assert_eq!(limits.effective(default), rate, "{limits:?}");
            assert_eq!(limits.combined(), combined, "{limits:?}");
        }
    }

    #[test]
    fn anonymous_callers_have_their_percentage_of_each_quota() {
        let own =
            UseLimits { calls_per_day: Some(260), bytes_per_month: Some(u64::MAX), ..UseLimits::default() };
        let part = own.of_anonymous(10);
        assert_eq!((part.calls_per_day, part.calls_per_month), (Some(26), None));
        assert_eq!(own.of_anonymous(1_000).bytes_per_month, Some(u64::MAX));
        let set = UseLimits { strangers_percent: Some(0), ..own };
        assert_eq!(set.of_anonymous(10).calls_per_day, Some(0), "overrides the default");
    }

    #[test]
    fn given_values_override_the_default() {
        let default = Rate::new(200, 400);
        let effective = |per_second, burst| RateLimit { per_second, burst }.effective(default);
        assert_eq!(effective(None, None), default);
        assert_eq!(effective(Some(10), None), Rate::new(10, 20));
        assert_eq!(effective(Some(10), Some(5)), Rate::new(10, 5));
        assert_eq!(effective(None, Some(5)), Rate::new(200, 5));
        assert_eq!(effective(Some(0), Some(5)), None);
        assert_eq!(RateLimit { per_second: None, burst: Some(5) }.effective(None), None);
    }
}
