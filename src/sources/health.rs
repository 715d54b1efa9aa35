//! How the fetches of a connection go on this replica.

use std::collections::HashMap;

use content_source::FetchError;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::cause::FetchCause;
use crate::model::ids::TenantId;

/// The maximum number of tenants whose failures are recorded, for each connection. Those of others are not shown.
const MAX_TENANTS: usize = 1_024;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing is known against it.
    Ready,
    /// The last fetch failed.
    Degraded,
    /// Its circuit is open: nothing is fetched for a while.
    Open,
    /// Its settings or secrets cannot be used.
    Failed,
    /// It is disabled.
    Disabled,
}

impl State {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Open => "open",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        }
    }
}

/// A fetch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedFetch {
    /// Why.
    pub error: FetchError,
    /// When.
    pub at: OffsetDateTime,
}

/// How the fetches of a connection go, for each tenant that uses it.
#[derive(Debug, Default)]
pub struct Health(Mutex<Fetches>);

#[derive(Debug, Default)]
struct Fetches {
    /// The tenants whose last fetch failed, and whether their circuit is open.
    failing: HashMap<TenantId, bool>,
    /// Until when the circuits of each cause are open, apart from those of the tenants.
    paused: [HashMap<TenantId, Instant>; FetchCause::COUNT],
    last_failure: Option<FailedFetch>,
    /// How many fetches were answered.
    answered: u64,
    /// How many failed.
    failed: u64,
}

impl Health {
    /// Records that a fetch for a tenant failed, and whether its circuit is open now.
    pub fn failed(&self, tenant: TenantId, failure: FailedFetch, is_open: bool) {
        let mut fetches = self.0.lock();
        fetches.failed += 1;
        fetches.last_failure = Some(failure);
        if fetches.failing.len() < MAX_TENANTS || fetches.failing.contains_key(&tenant) {
            fetches.failing.insert(tenant, is_open);
        }
    }

    /// Records that a fetch for a tenant succeeded.
    pub fn succeeded(&self, tenant: TenantId) {
        let mut fetches = self.0.lock();
        fetches.answered += 1;
        fetches.failing.remove(&tenant);
    }

    /// Records until when the circuit of a cause is open that is not the tenant itself.
    pub(super) fn paused(&self, tenant: TenantId, cause: FetchCause, until: Option<Instant>) {
        let of_cause = &mut self.0.lock().paused[cause.index()];
        match until {
            None => _ = of_cause.remove(&tenant),
            Some(until) if of_cause.len() < MAX_TENANTS || of_cause.contains_key(&tenant) => {
                of_cause.insert(tenant, until);
            }
            Some(_) => {}
        }
    }

    /// For how many tenants the circuit of their anonymous callers is open, and that of polls, whether or not the tenant's is.
    pub fn paused_apart(&self) -> [usize; 2] {
        let (fetches, now) = (self.0.lock(), Instant::now());
        [FetchCause::Anonymous, FetchCause::Poll { is_known: true }]
            .map(|cause| fetches.paused[cause.index()].values().filter(|until| **until > now).count())
    }

    /// The state for a tenant; without one, the worst of all.
    pub fn state(&self, tenant: Option<TenantId>) -> State {
        let fetches = self.0.lock();
        let state = |is_open: &bool| if *is_open { State::Open } else { State::Degraded };
        let failing = match tenant {
            Some(tenant) => fetches.failing.get(&tenant).map(state),
            None => fetches.failing.values().map(state).max(),
        };
        failing.unwrap_or(State::Ready)
    }

    /// How many fetches were answered by the source, and how many failed.
    pub fn counts(&self) -> [u64; 2] {
        let fetches = self.0.lock();
        [fetches.answered, fetches.failed]
    }

    /// For how many tenants the last fetch failed, and for how many of them the circuit is open.
    pub fn failing(&self) -> [usize; 2] {
        let fetches = self.0.lock();
        [fetches.failing.len(), fetches.failing.values().filter(|is_open| **is_open).count()]
    }

    /// The last fetch that failed, for whichever tenant.
    pub fn last_failure(&self) -> Option<FailedFetch> {
        self.0.lock().last_failure
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use content_source::FetchError;
    use time::OffsetDateTime;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::{FailedFetch, Health, MAX_TENANTS, State};
    use crate::model::ids::TenantId;
    use crate::sources::cause::FetchCause;

    #[test]
    fn state_is_that_of_the_tenant_and_the_worst_of_all() {
        let health = Health::default();
        let [acme, bee] = [1, 2].map(|uid| TenantId(Uuid::from_u128(uid)));
        let states = || [Some(acme), Some(bee), None].map(|tenant| health.state(tenant));
        let failure = FailedFetch { error: FetchError::Unreachable, at: OffsetDateTime::UNIX_EPOCH };
        assert_eq!((states(), health.last_failure()), ([State::Ready; 3], None));
        health.failed(acme, failure, false);
        assert_eq!(states(), [State::Degraded, State::Ready, State::Degraded]);
        health.failed(acme, failure, true);
        assert_eq!(states(), [State::Open, State::Ready, State::Open]);
        health.failed(bee, failure, false);
        assert_eq!(states(), [State::Open, State::Degraded, State::Open]);
        assert_eq!(health.failing(), [2, 1]);
        health.succeeded(acme);
        assert_eq!(states(), [State::Ready, State::Degraded, State::Degraded]);
        health.succeeded(bee);
        assert_eq!((states(), health.last_failure()), ([State::Ready; 3], Some(failure)));
        assert_eq!((health.failing(), health.counts()), ([0, 0], [2, 3]));
    }

    #[tokio::test]
    async fn circuits_of_other_causes_are_counted_while_they_are_open() {
        let (health, now) = (Health::default(), Instant::now());
        let [acme, bee] = [1, 2].map(|uid| TenantId(Uuid::from_u128(uid)));
        let later = Some(now + Duration::from_mins(1));
        let polls = FetchCause::Poll { is_known: false };
        for (tenant, cause, until) in [
            (acme, FetchCause::Anonymous, later),
            (bee, FetchCause::Anonymous, Some(now)),
            (bee, polls, later),
        ] {
            health.paused(tenant, cause, until);
        }
        assert_eq!((health.paused_apart(), health.state(None)), ([1, 1], State::Ready));
        health.paused(acme, FetchCause::Anonymous, None);
        assert_eq!(health.paused_apart(), [0, 1]);
    }

    #[test]
    fn failing_tenants_are_bounded() {
        let health = Health::default();
        let failure = FailedFetch { error: FetchError::Timeout, at: OffsetDateTime::UNIX_EPOCH };
        for uid in 0..2 * MAX_TENANTS as u128 {
            health.failed(TenantId(Uuid::from_u128(uid)), failure, false);
        }
        assert_eq!(health.0.lock().failing.len(), MAX_TENANTS);
    }
}
