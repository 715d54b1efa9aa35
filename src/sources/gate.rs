//! The limits of fetches: of a connection for each tenant, and of each tenant and the replica over all connections.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use content_source::{Bounds, FetchError, Fetched, Location, Pace, Source, Validator};
use governor::{DefaultDirectRateLimiter, Quota};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::circuit::Circuit;
use crate::cache::{CountGuard, FairPermit, FairSemaphore, KeyedCounts};
use crate::model::connection::ConnectionLimits;
use crate::model::ids::{ConnectionId, TenantId};
use crate::model::scope::Revision;

/// The maximum number of concurrent fetches of the replica. Those that wait are admitted in turn between tenants.
const MAX_FETCHES: usize = 1_024;
/// The maximum number of concurrent fetches of a tenant, those that wait included: the fetches of eight tenants that hang
/// leave no others waiting.
const MAX_OF_TENANT: usize = MAX_FETCHES / 8;
/// The maximum number of fetches that wait for another of the replica to end.
const MAX_WAITING: usize = 4_096;
/// The maximum number of files of a directory.
const MAX_ENTRIES: usize = 10_000;
/// The number of gates above which those that are not in use are dropped.
const MAX_GATES: usize = 16_384;

/// The part of a connection's concurrent fetches that anonymous callers of a tenant's public agents may use: half. Their fetches
/// and waiting reads are admitted while no more than this part of those of the tenant is in use.
pub(super) const ANONYMOUS_PART: usize = 2;
/// The part of a connection's rate that polls may use: half.
const POLLS_PART: u32 = 2;
/// The part that anonymous callers may use: half of what polls leave.
const ANONYMOUS_RATE_PART: u32 = 4;

/// The gates of all connections.
#[derive(Debug)]
pub(super) struct Gates {
    by_use: Mutex<HashMap<(ConnectionId, TenantId), Arc<Gate>>>,
    tenants: Arc<KeyedCounts<TenantId>>,
    replica: Arc<FairSemaphore<TenantId>>,
    /// How fast bytes of a connection come for a tenant; 0 for any rate.
    bytes_per_second: u64,
}

/// The limits of a connection for a tenant, at one revision of the connection.
#[derive(Debug)]
struct Gate {
    revision: Revision,
    places: Arc<Semaphore>,
    rate: DefaultDirectRateLimiter,
    /// Of polls: a part of the rate.
    polls: DefaultDirectRateLimiter,
    circuit: Mutex<Circuit>,
    pace: Option<Arc<Pace>>,
    anonymous: AnonymousGate,
}

/// What anonymous callers of the tenant's public agents may use of a gate. The values of variables are theirs to choose, so
/// their failures open a circuit of their own. Their bytes come at half of the tenant's rate, beside those of the tenant.
#[derive(Debug)]
struct AnonymousGate {
    places: Arc<Semaphore>,
    rate: DefaultDirectRateLimiter,
    circuit: Mutex<Circuit>,
    pace: Option<Arc<Pace>>,
}

impl Gate {
    fn new(revision: Revision, limits: &ConnectionLimits, bytes_per_second: u64) -> Self {
        let places = usize::try_from(limits.concurrent).unwrap_or(1).max(1);
        Self {
            revision,
            places: Arc::new(Semaphore::new(places)),
            rate: DefaultDirectRateLimiter::direct(quota(limits, 1)),
            polls: DefaultDirectRateLimiter::direct(quota(limits, POLLS_PART)),
            circuit: Mutex::default(),
            pace: Pace::new(bytes_per_second),
            anonymous: AnonymousGate {
                places: Arc::new(Semaphore::new(places.div_ceil(ANONYMOUS_PART))),
                rate: DefaultDirectRateLimiter::direct(quota(limits, ANONYMOUS_RATE_PART)),
                circuit: Mutex::default(),
                pace: Pace::new(bytes_per_second.div_ceil(2)),
            },
        }
    }

    /// Whether the circuit admits a fetch now. That of an anonymous caller is refused while the tenant's circuit is open, and does
    /// not try the source again for the tenant: its outcome may be due to values that the caller chose.
    fn admit(&self, is_anonymous: bool) -> bool {
        let now = Instant::now();
        if !is_anonymous {
            return self.circuit.lock().admit(now);
        }
        !self.circuit.lock().is_open(now) && self.anonymous.circuit.lock().admit(now)
    }

    fn is_failing(&self) -> bool {
        self.circuit.lock().is_failing() || self.anonymous.circuit.lock().is_failing()
    }
}

/// The rate of a connection, divided by `part`. It is stated as the interval of fetches, since half of an odd rate is no whole
/// number of fetches a second.
fn quota(limits: &ConnectionLimits, part: u32) -> Quota {
    let positive = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
    let period = Duration::from_secs(part.into()) / limits.per_second.max(1);
    let quota = Quota::with_period(period).unwrap_or_else(|| Quota::per_second(NonZeroU32::MAX));
    quota.allow_burst(positive(limits.burst / part))
}

/// A place among concurrent fetches.
async fn place(places: &Arc<Semaphore>, deadline: Instant) -> Result<OwnedSemaphorePermit, FetchError> {
    let place = timeout_at(deadline, Arc::clone(places).acquire_owned()).await;
    place.ok().and_then(Result::ok).ok_or(FetchError::Busy)
}

/// The permission of one fetch, whose outcome is recorded.
#[derive(Debug)]
pub(super) struct FetchPermit {
    gate: Arc<Gate>,
    is_anonymous: bool,
    _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    _tenant: CountGuard<TenantId>,
    _replica: FairPermit<TenantId>,
}

impl Gates {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let replica = FairSemaphore::new(MAX_FETCHES, MAX_WAITING);
        Self { by_use: Mutex::default(), tenants: Arc::default(), replica, bytes_per_second }
    }

    /// Admits a fetch, once there is a place among the concurrent ones. That of anonymous callers is admitted within their part
    /// of each limit.
    ///
    /// # Errors
    /// [`FetchError::Busy`] if a rate is exceeded, the circuit is open, or no place is free until `deadline`.
    pub(super) async fn pass(
        &self,
        (connection, revision): (ConnectionId, Revision),
        limits: &ConnectionLimits,
        (tenant, is_anonymous): (TenantId, bool),
        deadline: Instant,
    ) -> Result<FetchPermit, FetchError> {
        let gate = self.of((connection, revision), limits, tenant);
        let anonymous = is_anonymous.then_some(&gate.anonymous);
        if anonymous.is_some_and(|anonymous| anonymous.rate.check().is_err()) || gate.rate.check().is_err() {
            return Err(FetchError::Busy);
        }
        let most = MAX_OF_TENANT / if is_anonymous { ANONYMOUS_PART } else { 1 };
        let counted = self.tenants.try_add(tenant, most).ok_or(FetchError::Busy)?;
        let of_anonymous = match anonymous {
            Some(anonymous) => Some(place(&anonymous.places, deadline).await?),
            None => None,
        };
        let places = (place(&gate.places, deadline).await?, of_anonymous);
        let left = deadline.saturating_duration_since(Instant::now());
        let replica = self.replica.acquire(tenant, left).await.ok_or(FetchError::Busy)?;
        // Last, since the fetch that tries a failing source again must not wait.
        if !gate.admit(is_anonymous) {
            return Err(FetchError::Busy);
        }
        Ok(FetchPermit { gate, is_anonymous, _places: places, _tenant: counted, _replica: replica })
    }

    /// Admits a poll, which is then a fetch like any other, or a scan. Returns how fast bytes of a scan come.
    ///
    /// # Errors
    /// [`FetchError::Busy`].
    pub(super) fn admit_poll(
        &self,
        connection: (ConnectionId, Revision),
        limits: &ConnectionLimits,
        tenant: TenantId,
    ) -> Result<Option<Arc<Pace>>, FetchError> {
        let gate = self.of(connection, limits, tenant);
        gate.polls.check().map_err(|_| FetchError::Busy)?;
        Ok(gate.pace.clone())
    }

    /// Drops all gates.
    pub(super) fn clear(&self) {
        self.by_use.lock().clear();
    }

    fn of(
        &self,
        (connection, revision): (ConnectionId, Revision),
        limits: &ConnectionLimits,
        tenant: TenantId,
    ) -> Arc<Gate> {
        let mut gates = self.by_use.lock();
        if gates.len() >= MAX_GATES && !gates.contains_key(&(connection, tenant)) {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1 || gate.is_failing());
        }
        let gate = gates
            .entry((connection, tenant))
            .or_insert_with(|| Arc::new(Gate::new(revision, limits, self.bytes_per_second)));
        if gate.revision != revision {
            *gate = Arc::new(Gate::new(revision, limits, self.bytes_per_second));
        }
        Arc::clone(gate)
    }
}

impl FetchPermit {
    /// Fetches a location of the source until a deadline, at the rate at which bytes come for the tenant. Records how that
    /// ends; returns also whether the tenant's circuit is open now.
    pub(super) async fn fetch(
        &self,
        source: &dyn Source,
        (location, known): (&Location, Option<&Validator>),
        (limits, since): (&ConnectionLimits, Option<Instant>),
        deadline: Instant,
    ) -> (Result<Fetched, FetchError>, bool) {
        let since = since.map(Instant::into_std);
        let gate = &self.gate;
        let pace = if self.is_anonymous { gate.anonymous.pace.as_ref() } else { gate.pace.as_ref() };
        let bounds = Bounds { bytes: limits.max_bytes, entries: MAX_ENTRIES, since, pace };
        let fetching = async {
            if let Some(pace) = pace {
                pace.ready().await;
            }
            source.fetch(location, known, bounds).await
        };
        let fetched = timeout_at(deadline, fetching).await.unwrap_or(Err(FetchError::Timeout));
        let is_open = self.record(&fetched);
        (fetched, is_open)
    }

    /// Records how the fetch ended. Returns whether the tenant's circuit is open now.
    pub(super) fn record<T>(&self, outcome: &Result<T, FetchError>) -> bool {
        let (gate, now) = (&self.gate, Instant::now());
        let circuit = if self.is_anonymous { &gate.anonymous.circuit } else { &gate.circuit };
        let retry_after = match outcome {
            Err(FetchError::Timeout | FetchError::Unreachable) => None,
            Err(FetchError::Status { retry_after }) => {
                retry_after.map(|seconds| Duration::from_secs(seconds.into()))
            }
            // The source answered; what it answered concerns this content alone.
            Ok(_) | Err(_) => {
                circuit.lock().succeed();
                return false;
            }
        };
        let is_open = circuit.lock().fail(now, retry_after);
        if self.is_anonymous { gate.circuit.lock().is_open(now) } else { is_open }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use content_source::FetchError;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::{FetchPermit, Gates, quota};
    use crate::model::connection::ConnectionLimits;
    use crate::model::ids::{ConnectionId, TenantId};
    use crate::model::scope::Revision;

    #[tokio::test]
    async fn fetch_waits_for_a_place_among_the_concurrent_ones_of_its_tenant() {
        const SOON: Duration = Duration::from_millis(10);
        const LATER: Duration = Duration::from_mins(1);
        let gates = Gates::new(0);
        let limits = ConnectionLimits { concurrent: 2, ..ConnectionLimits::default() };
        let connection = (ConnectionId(Uuid::from_u128(1)), Revision(1));
        let pass = async |tenant, within| {
            let tenant = TenantId(Uuid::from_u128(tenant));
            gates.pass(connection, &limits, (tenant, false), Instant::now() + within).await
        };
        let (first, _second) = (pass(1, LATER).await.unwrap(), pass(1, LATER).await.unwrap());
        assert_eq!(pass(1, SOON).await.unwrap_err(), FetchError::Busy);
        assert!(pass(2, SOON).await.is_ok(), "another tenant has places of its own");
        let (third, ()) = tokio::join!(pass(1, LATER), async { drop(first) });
        assert!(third.is_ok());
    }

    /// A fetch of an own or an anonymous caller of one tenant.
    async fn pass(
        gates: &Gates,
        limits: &ConnectionLimits,
        anonymous: bool,
    ) -> Result<FetchPermit, FetchError> {
        let (connection, tenant) = (ConnectionId(Uuid::from_u128(1)), TenantId(Uuid::from_u128(1)));
        let soon = Instant::now() + Duration::from_millis(10);
        gates.pass((connection, Revision(1)), limits, (tenant, anonymous), soon).await
    }

    #[tokio::test]
    async fn anonymous_callers_leave_places_and_rate_to_others() {
        let limits = ConnectionLimits { concurrent: 4, ..ConnectionLimits::default() };
        let gates = Gates::new(0);
        let held = [pass(&gates, &limits, true).await, pass(&gates, &limits, true).await];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(pass(&gates, &limits, true).await.unwrap_err(), FetchError::Busy);
        assert!(pass(&gates, &limits, false).await.is_ok());
        drop(held);
        // Slow enough that no unit is added meanwhile.
        let limits = ConnectionLimits { per_second: 1, burst: 400, ..ConnectionLimits::default() };
        let gates = Gates::new(0);
        let mut admitted = 0;
        while admitted < 400 && pass(&gates, &limits, true).await.is_ok() {
            admitted += 1;
        }
        assert!((100..200).contains(&admitted), "{admitted}");
        assert!(pass(&gates, &limits, false).await.is_ok());
    }

    #[tokio::test]
    async fn failures_of_anonymous_callers_open_a_circuit_of_their_own() {
        let (limits, gates) = (ConnectionLimits::default(), Gates::new(0));
        let fail = async |anonymous| {
            pass(&gates, &limits, anonymous)
                .await
                .map(|permit| permit.record::<()>(&Err(FetchError::Timeout)))
        };
        for _ in 0..5 {
            assert_eq!(fail(true).await, Ok(false), "the tenant's circuit stays closed");
        }
        assert_eq!(fail(true).await, Err(FetchError::Busy));
        assert!(pass(&gates, &limits, false).await.is_ok());
        // A source that fails for callers with a credential fails for all.
        gates.clear();
        for is_open in [false, false, false, false, true] {
            assert_eq!(fail(false).await, Ok(is_open));
        }
        assert_eq!((fail(false).await, fail(true).await), (Err(FetchError::Busy), Err(FetchError::Busy)));
    }

    #[test]
    fn polls_use_at_most_half_of_the_rate() {
        for (per_second, burst, of_fetches, of_polls) in
            [(1, 1, 1_000_000, 2_000_000), (3, 5, 333_333, 666_666), (50, 100, 20_000, 40_000)]
        {
            let limits = ConnectionLimits { per_second, burst, ..ConnectionLimits::default() };
            for (part, micros) in [(1, of_fetches), (2, of_polls)] {
                let quota = quota(&limits, part);
                let interval = quota.replenish_interval().as_micros();
                assert_eq!(Duration::from_micros(micros).as_micros(), interval, "{per_second} / {part}");
                assert_eq!(quota.burst_size().get(), (burst / part).max(1), "{burst} / {part}");
            }
        }
    }
}
