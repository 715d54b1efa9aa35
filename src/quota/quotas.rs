//! Quotas per day and month, for all replicas together.
//!
//! A replica reserves a share of the remaining quota in the database and spends it from memory. Shares become smaller
//! as less remains, so that a quota is never exceeded and little is reserved that is not needed; a share that is
//! unused for a second is returned. A share is reserved by a task, one at a time for each agent or tenant. While the
//! database is unreachable, calls are admitted on credit for a while; the credit is settled with the next share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use parking_lot::Mutex;
use time::OffsetDateTime;
use uuid::Uuid;

use super::period_limit::PeriodLimit;
use super::quota_holder::{QuotaHolder, QuotaReservation, RETRY_INTERVAL, Taken, name};
use super::quota_meter::{QuotaLeft, QuotaMeter};
use crate::model::fault::Fault;
use crate::model::limits::{LimitScope, UseLimits};
use crate::model::quota::{Period, QuotaRequest, QuotaShare};
use crate::model::system::Clock;
use crate::store::{Store, StoreError};
use crate::telemetry::span::inherit;

/// How long a call waits for the database before it is admitted on credit.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a reservation goes on while calls are admitted on credit. A connection that stays silent delays the next one
/// for this long, and a share that is reserved later is lost until its period ends.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of shares in a row that an unreachable database does not take back at shutdown, after which no more are
/// returned. Before the shutdown it is one: the others are returned later.
const LAST_FAILURES: u32 = 3;

/// The shares of this replica.
#[derive(Debug)]
pub(super) struct Quotas {
    store: Store,
    stale: Duration,
    holders: DashMap<Uuid, Arc<QuotaHolder>>,
    /// What the database last showed of tenants' quotas, for metrics.
    meter: QuotaMeter,
    outage: Mutex<Option<Outage>>,
}

/// An outage of the database.
#[derive(Debug, Clone, Copy)]
struct Outage {
    /// When a query failed or timed out first.
    since: Instant,
    /// When one failed or timed out last.
    last_failure: Instant,
}

/// Why calls are not admitted.
#[derive(Debug)]
pub(super) enum QuotaRefusal {
    /// The quota is exhausted for this time.
    Exhausted { quota: &'static str, wait: Duration },
    /// The database has been unreachable for too long.
    Unknown(StoreError),
}

impl QuotaRefusal {
    pub(super) fn of(self, scope: LimitScope) -> Fault {
        match self {
            Self::Exhausted { quota, wait } => Fault::QuotaExceeded { scope, quota, retry_after: wait },
            Self::Unknown(error) => error.into(),
        }
    }
}

impl Quotas {
    /// Without shares; metrics show the quotas of at most `metered` tenants.
    pub(super) fn new(store: Store, stale: Duration, metered: usize) -> Self {
        let meter = QuotaMeter::new(metered);
        Self { store, stale, holders: DashMap::new(), meter, outage: Mutex::new(None) }
    }

    /// What is left of the quotas of tenants.
    pub(super) fn left(&self, at: OffsetDateTime) -> Vec<QuotaLeft> {
        let share = |uid: &Uuid, period: Period| {
            let left = self.holders.get(uid).map(|holder| *holder.left(period).lock());
            left.filter(|left| left.start == Some(period.start(at))).unwrap_or_default().share
        };
        self.meter.left(at, share)
    }

    /// Spends calls of an agent or a tenant, of the day and the month. `metered` for what metrics may show.
    pub(super) async fn take(
        self: &Arc<Self>,
        (uid, metered): (Uuid, bool),
        limits: &UseLimits,
        calls: i64,
        clock: &dyn Clock,
    ) -> Result<(), QuotaRefusal> {
        let at = clock.now();
        let holder = Arc::clone(&self.holders.entry(uid).or_default());
        holder.touched.store(true, Ordering::Relaxed);
        for period in [Period::Day, Period::Month] {
            let most = PeriodLimit::of(limits, period);
            if most.is_none() {
                continue;
            }
            let taken = self.take_of((uid, metered), &holder, (period, most), calls, clock).await;
            if taken.is_err() && period == Period::Month {
                holder.refund(Period::Day, PeriodLimit::of(limits, Period::Day), calls, at);
            }
            taken?;
        }
        Ok(())
    }

    async fn take_of(
        self: &Arc<Self>,
        (uid, metered): (Uuid, bool),
        holder: &Arc<QuotaHolder>,
        (period, most): (Period, PeriodLimit),
        calls: i64,
        clock: &dyn Clock,
    ) -> Result<(), QuotaRefusal> {
        // The time of each attempt: a call that waits for a share while a period ends is one of the next period.
        let attempt = || holder.left(period).lock().take(period, most, calls, clock.now());
        let refused = |quota| QuotaRefusal::Exhausted { quota, wait: period.left(clock.now()) };
        match attempt() {
            Taken::Yes => return Ok(()),
            Taken::No(quota) => return Err(refused(quota)),
            Taken::Short(_) => {}
        }
        let mut current = holder.reservation.lock().await;
        loop {
            // Before the attempt, which finds what it has added.
            current.take_if(|reservation| reservation.is_finished());
            // An earlier holder of the lock may have reserved enough for all; a request that did not wait may have
            // spent it.
            let need = match attempt() {
                Taken::Yes => return Ok(()),
                Taken::No(quota) => return Err(refused(quota)),
                Taken::Short(need) => need,
            };
            if !self.database_has_just_failed() {
                let reservation =
                    current.get_or_insert_with(|| self.reserve((uid, metered), holder, most, need));
                let reserved = match tokio::time::timeout(QUERY_TIMEOUT, reservation).await {
                    Ok(reserved) => {
                        *current = None;
                        reserved.unwrap_or_else(|_| Err(StoreError::closed()))
                    }
                    // It goes on, and the next call that needs a share waits for it.
                    Err(_) => Err(StoreError::Timeout),
                };
                match reserved {
                    Ok(()) => continue,
                    Err(error) => self.check_credit(error)?,
                }
            }
            holder.charge_credit(period, most, calls);
            return Ok(());
        }
    }

    /// Reserves a share in a task, which a request that ends first does not cancel: the database may have committed, and the
    /// share would be lost.
    fn reserve(
        self: &Arc<Self>,
        (uid, metered): (Uuid, bool),
        holder: &Arc<QuotaHolder>,
        most: PeriodLimit,
        need: QuotaRequest,
    ) -> QuotaReservation {
        let (quotas, holder) = (Arc::clone(self), Arc::clone(holder));
        tokio::spawn(inherit(async move {
            let reserving = quotas.store.reserve_quota(uid, &need);
            let reserved = tokio::time::timeout(RESERVATION_TIMEOUT, reserving).await;
            let (share, all) = reserved.unwrap_or(Err(StoreError::Timeout))?;
            *quotas.outage.lock() = None;
            if metered {
                quotas.meter.record(uid, (need.period, need.start), most, all);
            }
            holder.left(need.period).lock().add(&need, most, share);
            Ok(())
        }))
    }

    /// Whether the last attempt to query the database has just failed.
    fn database_has_just_failed(&self) -> bool {
        self.outage.lock().is_some_and(|outage| outage.last_failure.elapsed() < RETRY_INTERVAL)
    }

    /// Records that the database did not answer. Calls are admitted on credit unless it has been unreachable for too long.
    fn check_credit(&self, error: StoreError) -> Result<(), QuotaRefusal> {
        let mut outage = self.outage.lock();
        let last_failure = Instant::now();
        let since = outage.map_or(last_failure, |outage| outage.since);
        *outage = Some(Outage { since, last_failure });
        if since.elapsed() < self.stale { Ok(()) } else { Err(QuotaRefusal::Unknown(error)) }
    }

    /// The quota that an agent or a tenant has exhausted, according to the memory of this replica.
    pub(super) fn known_exhausted(
        &self,
        uid: Uuid,
        limits: &UseLimits,
        at: OffsetDateTime,
    ) -> Option<QuotaRefusal> {
        let holder = self.holders.get(&uid)?;
        [Period::Day, Period::Month].into_iter().find_map(|period| {
            let quota =
                holder.left(period).lock().known_exhausted(period, PeriodLimit::of(limits, period), at)?;
            Some(QuotaRefusal::Exhausted { quota, wait: period.left(at) })
        })
    }

    /// The quota that an agent or a tenant has exhausted, here and in the database, if any.
    pub(super) async fn exhausted(
        &self,
        uid: Uuid,
        limits: &UseLimits,
        at: OffsetDateTime,
    ) -> Result<Option<QuotaRefusal>, StoreError> {
        let holder = self.holders.get(&uid).map(|entry| Arc::clone(&entry));
        for period in [Period::Day, Period::Month] {
            let (most, start) = (PeriodLimit::of(limits, period), period.start(at));
            let here = holder.as_ref().map(|holder| *holder.left(period).lock());
            let here = here.filter(|left| left.start == Some(start)).unwrap_or_default().share;
            let used = self.store.reserved_quota(uid, period, start).await?;
            let is_over = |most: Option<i64>, used, here| most.is_some_and(|most| used >= most && here <= 0);
            let over = [
                (is_over(most.calls, used.calls, here.calls), true),
                (is_over(most.bytes, used.bytes, here.bytes), false),
            ];
            if let Some((_, calls)) = over.into_iter().find(|(over, _)| *over) {
                return Ok(Some(QuotaRefusal::Exhausted {
                    quota: name(period, calls),
                    wait: period.left(at),
                }));
            }
        }
        Ok(None)
    }

    /// Adds calls of an agent or a tenant that were spent in vain at `at`.
    pub(super) fn refund(&self, uid: Uuid, limits: &UseLimits, calls: i64, at: OffsetDateTime) {
        // Without a holder its share was returned, and the calls stay charged.
        if let Some(holder) = self.holders.get(&uid) {
            for period in [Period::Day, Period::Month] {
                holder.refund(period, PeriodLimit::of(limits, period), calls, at);
            }
        }
    }

    /// Subtracts bytes, known only after a request, which may therefore exceed the quota.
    pub(super) fn charge_bytes(&self, uid: Uuid, limits: &UseLimits, bytes: i64, at: OffsetDateTime) {
        let limited = |period: &Period| bytes > 0 && PeriodLimit::of(limits, *period).bytes.is_some();
        for period in [Period::Day, Period::Month].into_iter().filter(limited) {
            let charge =
                |holder: &QuotaHolder| holder.left(period).lock().charge_bytes(period.start(at), bytes);
            match self.holders.get(&uid) {
                Some(holder) => charge(&holder),
                // The request lasted longer than an unused share is held. Charged while the entry is locked, so that the
                // holder is not removed before.
                None => charge(&self.holders.entry(uid).or_default()),
            }
        }
    }

    /// Returns the shares that were not used since the last call; at shutdown all.
    pub(super) async fn give_back(&self, all: bool) {
        let holders: Vec<_> =
            self.holders.iter().map(|entry| (*entry.key(), Arc::clone(entry.value()))).collect();
        // What the database rejects of one holder does not keep the shares of the others.
        let (mut failures, most_failures) = (0, if all { LAST_FAILURES } else { 1 });
        for (uid, holder) in holders {
            if holder.touched.swap(false, Ordering::Relaxed) && !all {
                continue;
            }
            // A share that is waited for is not unused.
            let current =
                if all { Some(holder.reservation.lock().await) } else { holder.reservation.try_lock().ok() };
            let Some(mut current) = current else { continue };
            if let Some(reservation) = current.as_mut() {
                if !all && !reservation.is_finished() {
                    continue;
                }
                // What it has reserved is returned, too.
                reservation.await.ok();
                *current = None;
            }
            for period in [Period::Day, Period::Month] {
                match self.give_back_of(uid, &holder, period).await {
                    Ok(true) => failures = 0,
                    Ok(false) => {}
                    Err(error) => {
                        failures += u32::from(error.is_outage());
                        if failures >= most_failures {
                            return;
                        }
                    }
                }
            }
            self.holders.remove_if(&uid, |_, holder| Arc::strong_count(holder) <= 2 && holder.is_idle());
        }
    }

    /// Returns a share; false if there is none. If it is not known whether the database accepted it, the unused share is lost until the period ends, as
    /// that of a replica that is killed: returned again, it would be handed out twice.
    async fn give_back_of(
        &self,
        uid: Uuid,
        holder: &QuotaHolder,
        period: Period,
    ) -> Result<bool, StoreError> {
        let (start, share) = {
            let mut left = holder.left(period).lock();
            // A negative share is usage beyond what was reserved, and is recorded as such.
            (left.start, std::mem::take(&mut left.share))
        };
        let Some(start) = start.filter(|_| share != QuotaShare::default()) else { return Ok(false) };
        let Err(error) = self.store.return_quota(uid, period, start, share).await else {
            self.meter.record_returned(uid, (period, start), share);
            return Ok(true);
        };
        let mut kept = share;
        if error.may_have_committed() {
            // Another replica may have it. Usage beyond the share may be recorded twice instead of not at all.
            tracing::warn!(%error, calls = share.calls.max(0), bytes = share.bytes.max(0), "quota share not returned");
            kept = QuotaShare { calls: share.calls.min(0), bytes: share.bytes.min(0) };
        }
        holder.left(period).lock().restore(start, kept);
        Err(error)
    }
}
