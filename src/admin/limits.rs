//! Limits, as far as they may be set.

use super::authority::Authority;
use crate::model::fault::Fault;
use crate::model::limits::{Rate, RateLimit, UseLimits};

/// What limits that are set here are held against.
#[derive(Debug, Clone)]
pub struct LimitBounds {
    /// What the dearest request costs: a smaller burst would refuse it for ever.
    pub dearest: u32,
    /// The rate of a key for which nothing is set.
    pub key: Option<Rate>,
    /// That of an agent.
    pub agent: Option<Rate>,
    /// That of a tenant.
    pub tenant: Option<Rate>,
}

impl LimitBounds {
    /// The limits of an agent, which only the operator sets: they are what keeps its owner within bounds.
    pub(super) fn agent(&self, authority: &Authority, given: Option<UseLimits>) -> Result<UseLimits, Fault> {
        self.set(authority, given, self.agent)
    }

    /// The limits of a tenant, as those of an agent.
    pub(super) fn tenant(&self, authority: &Authority, given: Option<UseLimits>) -> Result<UseLimits, Fault> {
        self.set(authority, given, self.tenant)
    }

    /// The limits of a key, which an owner may only set lower than they are by themselves.
    pub(super) fn key(&self, authority: &Authority, given: Option<RateLimit>) -> Result<RateLimit, Fault> {
        let Some(limit) = given else { return Ok(RateLimit::default()) };
        let rate = self.check(limit, self.key)?;
        let wider = match (rate, self.key) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(rate), Some(most)) => rate.per_second > most.per_second || rate.burst > most.burst,
        };
        if wider && authority.operator().is_err() {
            return Err(Fault::invalid_params(
                "limits: only the operator gives a key more than it has by itself",
            ));
        }
        Ok(limit)
    }

    fn set(
        &self,
        authority: &Authority,
        given: Option<UseLimits>,
        default: Option<Rate>,
    ) -> Result<UseLimits, Fault> {
        let Some(limits) = given else { return Ok(UseLimits::default()) };
        authority.operator()?;
        self.check(limits.rate(), default)?;
        let quotas =
            [limits.calls_per_day, limits.calls_per_month, limits.bytes_per_day, limits.bytes_per_month];
        if quotas.into_iter().flatten().any(|most| i64::try_from(most).is_err()) {
            return Err(Fault::invalid_params("limits: a quota is too large"));
        }
        Ok(limits)
    }

    /// The rate that comes of it.
    fn check(&self, limit: RateLimit, default: Option<Rate>) -> Result<Option<Rate>, Fault> {
        if [limit.per_second, limit.burst].into_iter().flatten().any(|units| units > Rate::MOST) {
            return Err(Fault::invalid_params(format!("limits: at most {} units", Rate::MOST)));
        }
        let rate = limit.over(default);
        if limit.burst == Some(0) || rate.is_some_and(|rate| rate.burst.get() < self.dearest) {
            return Err(Fault::invalid_params(format!(
                "limits: a burst below {} would refuse for ever what costs that much",
                self.dearest
            )));
        }
        Ok(rate)
    }
}
