//! A bounded table of limiters, by their subject. A limiter is a token bucket in one atomic word, by the generic cell rate
//! algorithm.
//!
//! `governor` has no operation that reads without taking, which is needed to refuse a request before its body is read.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use governor::clock::{Clock, Reference};
use http::HeaderValue;

use super::status::policy_header;
use crate::model::limits::{LimitScope, Rate};

#[cfg(test)]
mod tests;

const SECOND: u64 = 1_000_000_000;

/// The state of one rate. All times are nanoseconds since a start that the owner chooses.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    /// The time in which one unit is restored.
    interval: u64,
    /// When all units are restored.
    full_at: AtomicU64,
}

/// Why units are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// They are available after this time.
    Until(Duration),
    /// There are never that many: the burst is smaller.
    Always,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: Rate) -> Self {
        let interval = SECOND / u64::from(rate.per_second.get());
        Self { rate, interval, full_at: AtomicU64::new(0) }
    }

    /// A bucket of another rate from which as many units are taken as from this one, also if that are more than it has: a
    /// lower rate that is set for a moment restores none.
    fn successor(&self, rate: Rate, now: u64) -> Self {
        let new = Self::new(rate);
        let used = u128::from(self.full_at.load(Ordering::Relaxed).saturating_sub(now));
        let scaled = used * u128::from(new.interval) / u128::from(self.interval);
        let restoring = u64::try_from(scaled).unwrap_or(u64::MAX);
        Self { full_at: AtomicU64::new(now.saturating_add(restoring)), ..new }
    }

    /// Takes units, all or none. Returns how many are left.
    ///
    /// # Errors
    /// [`Short`].
    pub(super) fn take(&self, units: u32, now: u64) -> Result<u32, Short> {
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let after = self.after(full_at, units, now)?;
            let swapped =
                self.full_at.compare_exchange_weak(full_at, after, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(self.units(after, now)),
                Err(other) => full_at = other,
            }
        }
    }

    /// Whether units could be taken. Takes nothing.
    ///
    /// # Errors
    /// [`Short`].
    pub(super) fn check(&self, units: u32, now: u64) -> Result<(), Short> {
        self.after(self.full_at.load(Ordering::Relaxed), units, now).map(drop)
    }

    /// How many units are left.
    pub(super) fn left(&self, now: u64) -> u32 {
        self.units(self.full_at.load(Ordering::Relaxed), now)
    }

    /// Whether all units are left.
    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }

    /// When all units would be restored after some more were taken.
    fn after(&self, full_at: u64, units: u32, now: u64) -> Result<u64, Short> {
        if units > self.rate.burst.get() {
            return Err(Short::Always);
        }
        let after = full_at.max(now) + self.interval * u64::from(units);
        match after.checked_sub(now + self.capacity()) {
            None | Some(0) => Ok(after),
            Some(early) => Err(Short::Until(Duration::from_nanos(early))),
        }
    }

    fn units(&self, full_at: u64, now: u64) -> u32 {
        let left = self.capacity().saturating_sub(full_at.saturating_sub(now)) / self.interval;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn capacity(&self) -> u64 {
        self.interval * u64::from(self.rate.burst.get())
    }
}

/// The minimum time between two searches for limiters to drop, in milliseconds.
const LOOK_AGAIN_MS: u64 = 100;

/// The maximum number of rates that have a shared limiter of exactly that rate. Above it they are [`rounded`].
const MAX_SHARED: usize = 1_024;

/// In nanoseconds.
const MILLISECOND: u64 = 1_000_000;

/// The state of one subject: what it used recently, and its requests in flight. One line of the processor's caches: requests
/// wait for the limiters of subjects that were not used a moment ago.
#[derive(Debug)]
pub(super) struct Limiter {
    bucket: Option<Bucket>,
    /// Requests in flight, unless they are counted by a predecessor.
    in_flight: AtomicU32,
    /// Whether its table no longer has it. Set by the table alone.
    is_retired: AtomicBool,
    has_predecessor: bool,
    extras: OnceLock<Box<LimiterExtras>>,
}

/// What few limiters have.
#[derive(Debug, Default)]
struct LimiterExtras {
    /// The first limiter of the subject, which counts its requests in flight also when the rate has changed.
    predecessor: Option<Arc<Limiter>>,
    /// Until when every request of the subject is refused, in milliseconds of the table.
    barred: AtomicU64,
    /// The value of `RateLimit-Policy`, computed when it is first sent.
    policy: OnceLock<(LimitScope, HeaderValue)>,
}

const _: () = assert!(size_of::<Limiter>() + 2 * size_of::<usize>() <= 64, "with the counters of an `Arc`");

/// Too few units are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitRefusal {
    /// The exhausted rate.
    pub(super) rate: Rate,
    /// The time until the units are available; `None` if the burst is smaller.
    pub(super) wait: Option<Duration>,
}

impl LimitRefusal {
    fn new(rate: Rate, short: Short) -> Self {
        let wait = match short {
            Short::Until(wait) => Some(wait),
            Short::Always => None,
        };
        Self { rate, wait }
    }
}

/// The units that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnitsLeft {
    /// The rate.
    pub(super) rate: Rate,
    /// Units that are left now.
    pub(super) units: u32,
}

impl Limiter {
    fn new(rate: Option<Rate>) -> Self {
        Self {
            bucket: rate.map(Bucket::new),
            in_flight: AtomicU32::new(0),
            is_retired: AtomicBool::new(false),
            has_predecessor: false,
            extras: OnceLock::new(),
        }
    }

    fn extras(&self) -> &LimiterExtras {
        self.extras.get_or_init(Box::default)
    }

    fn rate(&self) -> Option<Rate> {
        self.bucket.as_ref().map(|bucket| bucket.rate)
    }

    /// The limiter that replaces this one when the rate changes. What was used stays used: otherwise who may set lower rates
    /// than those above it could restore units by a change.
    fn successor(self: &Arc<Self>, rate: Option<Rate>, now: u64) -> Self {
        let first = Arc::clone(self.predecessor().unwrap_or(self));
        let extras = Box::new(LimiterExtras { predecessor: Some(first), ..LimiterExtras::default() });
        let bucket = rate.map(|rate| match &self.bucket {
            Some(bucket) => bucket.successor(rate, now),
            None => Bucket::new(rate),
        });
        Self { bucket, has_predecessor: true, extras: OnceLock::from(extras), ..Self::new(None) }
    }

    fn predecessor(&self) -> Option<&Arc<Self>> {
        if self.has_predecessor { self.extras.get()?.predecessor.as_ref() } else { None }
    }

    fn in_flight(&self) -> &AtomicU32 {
        self.predecessor().map_or(&self.in_flight, |first| &first.in_flight)
    }

    /// Takes units, all or none, at a time in nanoseconds of the table.
    pub(super) fn take(&self, units: NonZeroU32, now: u64) -> Result<Option<UnitsLeft>, LimitRefusal> {
        let Some(bucket) = &self.bucket else { return Ok(None) };
        let taken = bucket.take(units.get(), now);
        let rate = bucket.rate;
        taken.map(|units| Some(UnitsLeft { rate, units })).map_err(|short| LimitRefusal::new(rate, short))
    }

    /// Whether units could be taken. Takes nothing.
    pub(super) fn check(&self, units: NonZeroU32, now: u64) -> Result<(), LimitRefusal> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        bucket.check(units.get(), now).map_err(|short| LimitRefusal::new(bucket.rate, short))
    }

    /// The value of `RateLimit-Policy` for a scope. Subjects of several scopes may share one limiter.
    pub(super) fn policy_header(&self, scope: LimitScope, rate: Rate) -> HeaderValue {
        let (first, header) = self.extras().policy.get_or_init(|| (scope, policy_header(scope, rate)));
        if *first == scope { header.clone() } else { policy_header(scope, rate) }
    }

    /// Counts one more request in flight, unless the maximum is reached.
    pub(super) fn enter(&self, most: u32) -> bool {
        let entered = self.in_flight().fetch_add(1, Ordering::Relaxed) < most;
        if !entered {
            self.leave();
        }
        entered
    }

    /// Counts one request less in flight.
    pub(super) fn leave(&self) {
        self.in_flight().fetch_sub(1, Ordering::Relaxed);
    }

    fn barred(&self) -> u64 {
        self.extras.get().map_or(0, |extras| extras.barred.load(Ordering::Relaxed))
    }

    /// Whether its table no longer has it.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Whether a new limiter would behave the same: nothing used, nothing in flight.
    fn is_unused(&self, now: u64) -> bool {
        let unused = self.bucket.as_ref().is_none_or(|bucket| bucket.is_full(now));
        let barred = self.barred() > now / MILLISECOND;
        unused && self.in_flight().load(Ordering::Relaxed) == 0 && !barred
    }
}

/// The limiters of one kind of subject.
///
/// Their number is bounded. To make space, limiters are dropped that a new one would equal, so that dropping restores
/// no units; if there are none, new subjects share a limiter with all others of the same rate.
#[derive(Debug)]
pub(super) struct Table<K: Hash + Eq, C: Clock> {
    /// Clients choose addresses, but cannot compute their hashes: the hasher has a random seed in each process.
    limiters: DashMap<K, Arc<Limiter>, RandomState>,
    most: usize,
    /// The limiters of no subject, by rate.
    shared: DashMap<Option<Rate>, Arc<Limiter>, RandomState>,
    looked: AtomicU64,
    clock: C,
    start: C::Instant,
}

impl<K: Hash + Eq + Copy, C: Clock + Clone> Table<K, C> {
    /// At most `most` limiters of subjects. Times are counted from the start of the clock.
    pub(super) fn new(most: usize, (clock, start): (C, C::Instant)) -> Self {
        let (limiters, shared) = (DashMap::default(), DashMap::default());
        Self { limiters, most, shared, looked: AtomicU64::new(0), clock, start }
    }

    /// The limiter of a subject with this rate.
    pub(super) fn of(&self, holder: K, rate: Option<Rate>) -> Arc<Limiter> {
        let known = self.limiters.get(&holder);
        let known = known.map(|known| (known.rate() == rate).then(|| Arc::clone(&known)));
        match known {
            Some(Some(limiter)) => return limiter,
            None if !self.has_room() => return self.shared(rate),
            // It replaces the one of another rate.
            _ => {}
        }
        match self.limiters.entry(holder) {
            Entry::Occupied(mut entry) => {
                if entry.get().rate() != rate {
                    let replaced = entry.insert(Arc::new(entry.get().successor(rate, self.now())));
                    replaced.is_retired.store(true, Ordering::Relaxed);
                }
                Arc::clone(entry.get())
            }
            Entry::Vacant(entry) => {
                let limiter = Arc::new(Limiter::new(rate));
                Arc::clone(&entry.insert(limiter))
            }
        }
    }

    /// The limiter that subjects of a rate share while there is no space.
    fn shared(&self, rate: Option<Rate>) -> Arc<Limiter> {
        let is_known = self.shared.contains_key(&rate) || self.shared.len() < MAX_SHARED;
        let rate = if is_known { rate } else { rate.map(rounded) };
        let create = || {
            let limiter = Limiter::new(rate);
            limiter.is_retired.store(true, Ordering::Relaxed);
            Arc::new(limiter)
        };
        Arc::clone(&self.shared.entry(rate).or_insert_with(create))
    }

    /// The units that a subject has left; `None` if it has used nothing.
    pub(super) fn left(&self, holder: K, rate: Rate) -> Option<u32> {
        let limiter = self.limiters.get(&holder)?;
        let bucket = limiter.bucket.as_ref().filter(|bucket| bucket.rate == rate)?;
        Some(bucket.left(self.now()))
    }

    /// Refuses every request of a subject for a while.
    pub(super) fn bar(&self, limiter: &Limiter, time: Duration) {
        let until = self.millis().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        limiter.extras().barred.fetch_max(until, Ordering::Relaxed);
    }

    /// The remaining time for which a subject is refused, if it is.
    pub(super) fn barred(&self, holder: K) -> Option<Duration> {
        let until = self.limiters.get(&holder)?.barred();
        until.checked_sub(self.millis()).filter(|left| *left > 0).map(Duration::from_millis)
    }

    /// The number of limiters.
    pub(super) fn len(&self) -> usize {
        self.limiters.len()
    }

    /// The time in nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.clock.now().duration_since(self.start).as_u64()
    }

    fn millis(&self) -> u64 {
        self.now() / MILLISECOND
    }

    /// Whether there is space for one more, after dropping unused limiters.
    fn has_room(&self) -> bool {
        if self.limiters.len() < self.most {
            return true;
        }
        let nanos = self.now();
        let (now, looked) = (nanos / MILLISECOND, self.looked.load(Ordering::Relaxed));
        let due = looked == 0 || now >= looked.saturating_add(LOOK_AGAIN_MS);
        let mine = due
            && self.looked.compare_exchange(looked, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if mine {
            // Those in use are not retired for a moment, which their callers would notice.
            self.limiters.retain(|_, limiter| !(limiter.is_unused(nanos) && retire(limiter, nanos)));
        }
        self.limiters.len() < self.most
    }
}

/// The next lower power of two of units a second, with the next higher one as the burst, which no request that is allowed
/// exceeds. There are few hundred such rates, however many an owner sets.
fn rounded(Rate { per_second, burst }: Rate) -> Rate {
    let refilled = NonZeroU32::new(1 << per_second.ilog2()).unwrap_or(per_second);
    Rate { per_second: refilled, burst: burst.checked_next_power_of_two().unwrap_or(burst) }
}

/// Retires a limiter that only its table has and that is unused; returns whether it did. What
/// [remembers](super::CallerLimiters) a limiter reads whether it is retired after taking a reference to it, so that one of
/// both sees the other: no two limiters of a subject are in use. What was used by a reference that is gone is seen then.
fn retire(limiter: &Arc<Limiter>, now: u64) -> bool {
    limiter.is_retired.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let retired = Arc::strong_count(limiter) == 1 && {
        fence(Ordering::Acquire);
        limiter.is_unused(now)
    };
    limiter.is_retired.store(retired, Ordering::Relaxed);
    retired
}
