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

use super::cause::FetchCause;
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
/// The part that polls may use: half of what anonymous callers leave.
const POLLS_PART: usize = 4;
/// The part of a connection's rate that polls may use: half.
const POLLS_RATE_PART: u32 = 2;
/// The part that anonymous callers may use: half of what polls leave.
const ANONYMOUS_RATE_PART: u32 = 4;
/// The part of the rate of bytes that anonymous callers, and polls, have beside the tenant's.
const BYTES_PART: u64 = 2;

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
    /// All of it, for the tenant's own callers.
    whole: GatePart,
    /// What anonymous callers of the tenant's public agents may use. The values of variables are theirs to choose.
    anonymous: GatePart,
    /// What polls may use, for whomever they are: anonymous callers choose what they subscribe to. Scans have the same rate.
    polls: GatePart,
}

/// What fetches of one cause may use of a gate. Each cause has a circuit of its own, which its failures open.
#[derive(Debug)]
struct GatePart {
    permits: Arc<Semaphore>,
    rate: DefaultDirectRateLimiter,
    circuit: Mutex<Circuit>,
    /// The bytes of each part come beside those of the others.
    pace: Option<Arc<Pace>>,
}

impl GatePart {
    /// A part of the concurrent fetches and of the rate of a connection, and a rate of bytes.
    fn new(limits: &ConnectionLimits, (parts, rate): (usize, u32), bytes_per_second: u64) -> Self {
        let concurrent = usize::try_from(limits.concurrent).unwrap_or(1);
        Self {
            permits: Arc::new(Semaphore::new((concurrent / parts).max(1))),
            rate: DefaultDirectRateLimiter::direct(quota(limits, rate)),
            circuit: Mutex::default(),
            pace: Pace::new(bytes_per_second),
        }
    }
}

impl Gate {
    fn new(revision: Revision, limits: &ConnectionLimits, bytes_per_second: u64) -> Self {
        let part = |parts, bytes: u64| GatePart::new(limits, parts, bytes_per_second.div_ceil(bytes));
        Self {
            revision,
            whole: part((1, 1), 1),
            anonymous: part((ANONYMOUS_PART, ANONYMOUS_RATE_PART), BYTES_PART),
            polls: part((POLLS_PART, POLLS_RATE_PART), BYTES_PART),
        }
    }

    fn part(&self, cause: FetchCause) -> &GatePart {
        match cause {
            FetchCause::Tenant => &self.whole,
            FetchCause::Anonymous => &self.anonymous,
            FetchCause::Poll { .. } => &self.polls,
        }
    }

    /// Whether the circuits admit a fetch now. One that the tenant did not cause is refused while the tenant's circuit is open,
    /// and does not try the source again for the tenant: its outcome may be due to values that a caller chose.
    fn admits(&self, cause: FetchCause) -> bool {
        let now = Instant::now();
        if cause != FetchCause::Tenant && self.whole.circuit.lock().is_open(now) {
            return false;
        }
        let mut circuit = self.part(cause).circuit.lock();
        if cause.has_failures_counted() { circuit.admit(now) } else { !circuit.is_open(now) }
    }

    fn is_failing(&self) -> bool {
        [&self.whole, &self.anonymous, &self.polls].iter().any(|part| part.circuit.lock().is_failing())
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

/// A permit for one of the concurrent fetches.
async fn acquire(permits: &Arc<Semaphore>, deadline: Instant) -> Result<OwnedSemaphorePermit, FetchError> {
    let permit = timeout_at(deadline, Arc::clone(permits).acquire_owned()).await;
    permit.ok().and_then(Result::ok).ok_or(FetchError::Busy)
}

/// The permission of one fetch, whose outcome is recorded.
#[derive(Debug)]
pub(super) struct FetchPermit {
    gate: Arc<Gate>,
    cause: FetchCause,
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
    _tenant: CountGuard<TenantId>,
    _replica: FairPermit<TenantId>,
}

/// The circuits after a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CircuitStatus {
    /// Whether that of the tenant is open.
    pub(super) is_open: bool,
    /// Until when that of the cause is open, if it is another one.
    pub(super) cause_until: Option<Instant>,
}

impl Gates {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let replica = FairSemaphore::new(MAX_FETCHES, MAX_WAITING);
        Self { by_use: Mutex::default(), tenants: Arc::default(), replica, bytes_per_second }
    }

    /// Waits for a permit for one of the concurrent fetches, and until bytes of earlier ones are paid, within the part of each limit
    /// that the cause may use. [`FetchPermit::admit`] comes next.
    ///
    /// # Errors
    /// [`FetchError::Busy`] if a rate is exceeded, or no permit is free until `deadline`; [`FetchError::Timeout`] if bytes are not
    /// paid until then.
    pub(super) async fn pass(
        &self,
        (connection, revision): (ConnectionId, Revision),
        limits: &ConnectionLimits,
        (tenant, cause): (TenantId, FetchCause),
        deadline: Instant,
    ) -> Result<FetchPermit, FetchError> {
        let gate = self.of((connection, revision), limits, tenant);
        let part = gate.part(cause);
        // That of a poll was checked before it.
        let is_exceeded = cause == FetchCause::Anonymous && part.rate.check().is_err();
        if is_exceeded || gate.whole.rate.check().is_err() {
            return Err(FetchError::Busy);
        }
        let most = MAX_OF_TENANT / if cause == FetchCause::Anonymous { ANONYMOUS_PART } else { 1 };
        let counted = self.tenants.try_add(tenant, most).ok_or(FetchError::Busy)?;
        let of_part =
            if cause == FetchCause::Tenant { None } else { Some(acquire(&part.permits, deadline).await?) };
        let permits = (acquire(&gate.whole.permits, deadline).await?, of_part);
        let left = deadline.saturating_duration_since(Instant::now());
        let replica = self.replica.acquire(tenant, left).await.ok_or(FetchError::Busy)?;
        if let Some(pace) = &part.pace {
            timeout_at(deadline, pace.ready()).await.map_err(|_| FetchError::Timeout)?;
        }
        Ok(FetchPermit { gate, cause, _permits: permits, _tenant: counted, _replica: replica })
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
        gate.polls.rate.check().map_err(|_| FetchError::Busy)?;
        Ok(gate.whole.pace.clone())
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
    /// Admits the fetch. Nothing is waited for between this and the fetch: one that tries a failing source again is alone.
    ///
    /// # Errors
    /// [`FetchError::Busy`] if the circuit is open.
    pub(super) fn admit(&self) -> Result<(), FetchError> {
        if self.gate.admits(self.cause) { Ok(()) } else { Err(FetchError::Busy) }
    }

    /// Fetches a location of the source until a deadline, at the rate at which bytes come for the cause. Records how that
    /// ends; returns also the circuits after it.
    pub(super) async fn fetch(
        &self,
        source: &dyn Source,
        (location, known): (&Location, Option<&Validator>),
        (limits, since): (&ConnectionLimits, Option<Instant>),
        deadline: Instant,
    ) -> (Result<Fetched, FetchError>, CircuitStatus) {
        let since = since.map(Instant::into_std);
        let pace = self.gate.part(self.cause).pace.as_ref();
        let bounds = Bounds { bytes: limits.max_bytes, entries: MAX_ENTRIES, since, pace };
        let fetching = source.fetch(location, known, bounds);
        let fetched = timeout_at(deadline, fetching).await.unwrap_or(Err(FetchError::Timeout));
        let status = self.record(&fetched);
        (fetched, status)
    }

    /// Records how the fetch ended. Returns the circuits after it.
    pub(super) fn record<T>(&self, outcome: &Result<T, FetchError>) -> CircuitStatus {
        let (now, whole, circuit) =
            (Instant::now(), &self.gate.whole.circuit, &self.gate.part(self.cause).circuit);
        let (retry_after, is_of_client) = match outcome {
            Err(FetchError::Timeout | FetchError::Unreachable) => (None, false),
            Err(FetchError::Status { retry_after }) => (*retry_after, false),
            Err(FetchError::RateLimited { retry_after }) => (*retry_after, true),
            // The source answered; what it answered concerns this content alone.
            Ok(_) | Err(_) => {
                circuit.lock().succeed();
                return self.status(now);
            }
        };
        let asked = retry_after.map(|seconds| Duration::from_secs(seconds.into()));
        if self.cause.has_failures_counted() {
            circuit.lock().fail(now, asked);
        } else {
            circuit.lock().pause(now, asked);
        }
        // That the gateway is rate limited does not depend on what it asked for: fetches of all causes pause.
        if is_of_client && self.cause != FetchCause::Tenant {
            whole.lock().pause(now, asked);
        }
        self.status(now)
    }

    fn status(&self, now: Instant) -> CircuitStatus {
        let is_open = self.gate.whole.circuit.lock().is_open(now);
        let of_cause = || self.gate.part(self.cause).circuit.lock().open_until();
        CircuitStatus {
            is_open,
            cause_until: if self.cause == FetchCause::Tenant { None } else { of_cause() },
        }
    }
}

#[cfg(test)]
mod tests;
