//! Validation of limits, and the bounds of manifests.

use std::sync::Arc;
use std::time::Duration;

use super::authority::Authority;
use crate::cache::{FairPermit, FairSemaphore};
use crate::http::intake::Intake;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::limits::{Rate, RateLimit, UseLimits};

/// How many manifests and skills are processed at once; others wait, those of each tenant in turn.
const CONCURRENT_MANIFESTS: usize = 4;
/// How many of a tenant: one whose manifests await a database that hangs leaves the others to other tenants.
const CONCURRENT_MANIFESTS_OF_TENANT: usize = CONCURRENT_MANIFESTS / 2;
/// How many wait; past it, the tenant with the most of them loses its newest one.
const MAX_WAITING: usize = 256;
/// How long each waits.
const WAIT: Duration = Duration::from_secs(10);

/// The bounds of limits that may be set.
#[derive(Debug, Clone)]
pub struct LimitBounds {
    /// The highest cost of a request: a smaller burst would always refuse it.
    pub dearest: u32,
    /// The default rate of a key.
    pub key: Option<Rate>,
    /// The default rate of an agent.
    pub agent: Option<Rate>,
    /// The default rate of a tenant.
    pub tenant: Option<Rate>,
}

impl LimitBounds {
    /// Validates the limits of an agent, which only the operator sets, changes and removes.
    pub(super) fn agent(&self, authority: &Authority, given: Option<UseLimits>) -> Result<UseLimits, Fault> {
        Self::set(authority, given, |limits| self.check(limits.rate(), self.agent))
    }

    /// Validates the limits of a tenant, like those of an agent.
    pub(super) fn tenant(&self, authority: &Authority, given: Option<UseLimits>) -> Result<UseLimits, Fault> {
        Self::set(authority, given, |limits| self.check(limits.rate(), self.tenant))
    }

    /// Validates the limits of a key, without those of the calling key.
    pub(super) fn key(&self, given: Option<RateLimit>) -> Result<Option<RateLimit>, Fault> {
        given.map_or(Ok(()), |limit| self.check(limit, self.key))?;
        Ok(given)
    }

    fn set(
        authority: &Authority,
        given: Option<UseLimits>,
        check: impl FnOnce(&UseLimits) -> Result<(), Fault>,
    ) -> Result<UseLimits, Fault> {
        if !authority.is_operator() {
            return Err(Fault::not_permitted("limits: only the operator key sets or removes them"));
        }
        let Some(limits) = given else { return Ok(UseLimits::default()) };
        check(&limits)?;
        let quotas =
            [limits.calls_per_day, limits.calls_per_month, limits.bytes_per_day, limits.bytes_per_month];
        if quotas.into_iter().flatten().any(|most| i64::try_from(most).is_err()) {
            return Err(Fault::invalid_params("limits: a quota is too large"));
        }
        if limits.strangers_percent.is_some_and(|percent| percent > UseLimits::MAX_STRANGERS_PERCENT) {
            return Err(Fault::invalid_params(format!(
                "limits: strangersPercent is more than {}",
                UseLimits::MAX_STRANGERS_PERCENT
            )));
        }
        Ok(limits)
    }

    /// Validates that no request exceeds the burst.
    fn check(&self, limit: RateLimit, default: Option<Rate>) -> Result<(), Fault> {
        if [limit.per_second, limit.burst].into_iter().flatten().any(|units| units > Rate::MAX) {
            return Err(Fault::invalid_params(format!("limits: at most {} units", Rate::MAX)));
        }
        let rate = limit.effective(default);
        if limit.burst == Some(0) || rate.is_some_and(|rate| rate.burst.get() < self.dearest) {
            return Err(Fault::invalid_params(format!(
                "limits: burst must be at least {}, the highest cost of a request",
                self.dearest
            )));
        }
        Ok(())
    }
}

/// The bounds of manifests: their size, and how many are processed at once, since each takes several times its size in
/// memory.
#[derive(Debug)]
pub struct ManifestLimits {
    /// The maximum size of a manifest as JSON, in bytes.
    pub(super) bytes: usize,
    permits: Arc<FairSemaphore<TenantId>>,
}

impl ManifestLimits {
    /// Creates the bounds of manifests of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let most_each = CONCURRENT_MANIFESTS_OF_TENANT;
        Self { bytes, permits: FairSemaphore::with_share(CONCURRENT_MANIFESTS, most_each, MAX_WAITING) }
    }

    /// Waits for a permit to process a manifest of a tenant, without the work permit of the request.
    pub(super) async fn acquire(
        &self,
        tenant: TenantId,
        intake: &Intake,
    ) -> Result<FairPermit<TenantId>, Fault> {
        let acquire =
            async { self.permits.acquire(tenant, WAIT).await.ok_or_else(|| intake.cause_of(Fault::BUSY)) };
        intake.wait(acquire).await
    }
}
