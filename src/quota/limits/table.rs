//! A bounded table of limiters, by their subject.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use governor::clock::{Clock, Reference};
use http::HeaderValue;

use super::bucket::{Bucket, Short};
use super::status::policy;
use crate::model::fault::LimitScope;
use crate::model::limits::Rate;

/// The minimum time between two searches for limiters to drop, in milliseconds.
const LOOK_AGAIN_MS: u64 = 100;

/// In nanoseconds.
const MILLISECOND: u64 = 1_000_000;

/// The state of one subject: what it used recently, and its requests in flight.
#[derive(Debug)]
pub(super) struct Limiter {
    rate: Option<(Rate, Bucket)>,
    /// Requests in flight; shared with the limiter that replaces this one when the rate changes.
    in_flight: Arc<AtomicU32>,
    /// Until when every request of the subject is refused, in milliseconds of the table.
    barred: AtomicU64,
    /// The value of `RateLimit-Policy`, computed when it is first sent.
    policy: OnceLock<(LimitScope, HeaderValue)>,
}

/// Too few units are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// The exhausted rate.
    pub(super) rate: Rate,
    /// The time until the units are available; `None` if the burst is smaller.
    pub(super) wait: Option<Duration>,
}

impl Refused {
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
pub(super) struct Left {
    /// The rate.
    pub(super) rate: Rate,
    /// Units that are left now.
    pub(super) units: u32,
}

impl Limiter {
    fn new(rate: Option<Rate>, in_flight: Arc<AtomicU32>) -> Self {
        let rate = rate.map(|rate| (rate, Bucket::new(rate)));
        Self { rate, in_flight, barred: AtomicU64::new(0), policy: OnceLock::new() }
    }

    fn rate(&self) -> Option<Rate> {
        self.rate.as_ref().map(|(rate, _)| *rate)
    }

    /// Takes units, all or none, at a time in nanoseconds of the table.
    pub(super) fn take(&self, units: NonZeroU32, now: u64) -> Result<Option<Left>, Refused> {
        let Some((rate, bucket)) = &self.rate else { return Ok(None) };
        let taken = bucket.take(units.get(), now);
        taken.map(|units| Some(Left { rate: *rate, units })).map_err(|short| Refused::new(*rate, short))
    }

    /// Whether units could be taken. Takes nothing.
    pub(super) fn check(&self, units: NonZeroU32, now: u64) -> Result<(), Refused> {
        let Some((rate, bucket)) = &self.rate else { return Ok(()) };
        bucket.check(units.get(), now).map_err(|short| Refused::new(*rate, short))
    }

    /// The value of `RateLimit-Policy` for a scope. Subjects of several scopes may share one limiter.
    pub(super) fn policy(&self, scope: LimitScope, rate: Rate) -> HeaderValue {
        let (first, header) = self.policy.get_or_init(|| (scope, policy(scope, rate)));
        if *first == scope { header.clone() } else { policy(scope, rate) }
    }

    /// Counts one more request in flight, unless the maximum is reached.
    pub(super) fn enter(&self, most: u32) -> bool {
        let entered = self.in_flight.fetch_add(1, Ordering::Relaxed) < most;
        if !entered {
            self.leave();
        }
        entered
    }

    /// Counts one request less in flight.
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a new limiter would behave the same: nothing used, nothing in flight.
    fn is_unused(&self, now: u64) -> bool {
        let unused = self.rate.as_ref().is_none_or(|(_, bucket)| bucket.is_full(now));
        let barred = self.barred.load(Ordering::Relaxed) > now / MILLISECOND;
        unused && self.in_flight.load(Ordering::Relaxed) == 0 && !barred
    }
}

/// The limiters of one kind of subject.
///
/// Their number is bounded. To make space, limiters are dropped that a new one would equal, so that dropping restores
/// no units; if there are none, new subjects share one limiter.
#[derive(Debug)]
pub(super) struct Table<K: Hash + Eq, C: Clock> {
    /// Clients choose addresses, but cannot compute their hashes: the hasher has a random seed in each process.
    limiters: DashMap<K, Arc<Limiter>, RandomState>,
    most: usize,
    shared: Arc<Limiter>,
    looked: AtomicU64,
    clock: C,
    start: C::Instant,
}

impl<K: Hash + Eq + Copy, C: Clock + Clone> Table<K, C> {
    /// At most `most` limiters; subjects above that share one of `rate`. Times are counted from the start of the clock.
    pub(super) fn new(most: usize, rate: Option<Rate>, (clock, start): (C, C::Instant)) -> Self {
        let shared = Arc::new(Limiter::new(rate, Arc::default()));
        Self { limiters: DashMap::default(), most, shared, looked: AtomicU64::new(0), clock, start }
    }

    /// The limiter of a subject with this rate.
    pub(super) fn of(&self, holder: K, rate: Option<Rate>) -> Arc<Limiter> {
        if let Some(known) = self.limiters.get(&holder)
            && known.rate() == rate
        {
            return Arc::clone(&known);
        }
        if !self.has_room() {
            return Arc::clone(&self.shared);
        }
        match self.limiters.entry(holder) {
            Entry::Occupied(mut entry) => {
                if entry.get().rate() != rate {
                    let in_flight = Arc::clone(&entry.get().in_flight);
                    entry.insert(Arc::new(Limiter::new(rate, in_flight)));
                }
                Arc::clone(entry.get())
            }
            Entry::Vacant(entry) => {
                let limiter = Arc::new(Limiter::new(rate, Arc::default()));
                Arc::clone(&entry.insert(limiter))
            }
        }
    }

    /// The units that a subject has left; `None` if it has used nothing.
    pub(super) fn left(&self, holder: K, rate: Rate) -> Option<u32> {
        let limiter = self.limiters.get(&holder)?;
        let (_, bucket) = limiter.rate.as_ref().filter(|(now, _)| *now == rate)?;
        Some(bucket.left(self.now()))
    }

    /// Refuses every request of a subject for a while.
    pub(super) fn bar(&self, limiter: &Limiter, time: Duration) {
        let until = self.millis().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        limiter.barred.fetch_max(until, Ordering::Relaxed);
    }

    /// The remaining time for which a subject is refused, if it is.
    pub(super) fn barred(&self, holder: K) -> Option<Duration> {
        let until = self.limiters.get(&holder)?.barred.load(Ordering::Relaxed);
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
            self.limiters.retain(|_, limiter| Arc::strong_count(limiter) > 1 || !limiter.is_unused(nanos));
        }
        self.limiters.len() < self.most
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use governor::clock::{Clock, FakeRelativeClock};

    use super::{Left, Refused, Table};
    use crate::model::fault::LimitScope;
    use crate::model::limits::Rate;

    fn table(most: usize) -> (Table<u32, FakeRelativeClock>, FakeRelativeClock, Rate) {
        let clock = FakeRelativeClock::default();
        let rate = Rate::new(10, 20).unwrap();
        (Table::new(most, Some(rate), (clock.clone(), clock.now())), clock, rate)
    }

    fn take(
        table: &Table<u32, FakeRelativeClock>,
        holder: u32,
        rate: Rate,
        units: u32,
    ) -> Result<u32, Option<Duration>> {
        let taken = table.of(holder, Some(rate)).take(NonZeroU32::new(units).unwrap(), table.now());
        taken.map(|left| left.unwrap().units).map_err(|refused| refused.wait)
    }

    #[test]
    fn units_are_taken_up_to_the_burst_and_restored_at_the_rate() {
        let (table, clock, rate) = table(10);
        assert_eq!(take(&table, 1, rate, 19), Ok(1));
        assert_eq!(take(&table, 1, rate, 3), Err(Some(Duration::from_millis(200))));
        assert_eq!(take(&table, 1, rate, 1), Ok(0), "a refusal takes nothing");
        assert_eq!(take(&table, 2, rate, 1), Ok(19), "another subject has its own");
        clock.advance(Duration::from_secs(1));
        assert_eq!(take(&table, 1, rate, 10), Ok(0));
        assert_eq!(take(&table, 1, rate, 21), Err(None), "more than the burst");
    }

    #[test]
    fn without_a_rate_nothing_is_limited() {
        let (table, ..) = table(10);
        assert_eq!(table.of(1, None).take(NonZeroU32::MAX, table.now()), Ok(None));
    }

    #[test]
    fn a_new_rate_replaces_the_limiter_and_keeps_requests_in_flight() {
        let (table, _, rate) = table(10);
        assert_eq!(take(&table, 1, rate, 20), Ok(0));
        assert!(table.of(1, Some(rate)).enter(1));
        let wider = Rate::new(100, 200).unwrap();
        let one = NonZeroU32::MIN;
        assert_eq!(
            table.of(1, Some(wider)).take(one, table.now()),
            Ok(Some(Left { rate: wider, units: 199 }))
        );
        assert!(!table.of(1, Some(wider)).enter(1));
    }

    #[test]
    fn only_unused_limiters_are_dropped_and_new_subjects_share_one() {
        let (table, clock, rate) = table(3);
        clock.advance(Duration::from_secs(1));
        assert_eq!(take(&table, 1, rate, 20), Ok(0));
        assert_eq!(take(&table, 2, rate, 10), Ok(10));
        let busy = table.of(3, Some(rate));
        assert!(busy.enter(9));
        drop(busy);
        assert_eq!(take(&table, 4, rate, 20), Ok(0));
        assert!(take(&table, 5, rate, 20).is_err(), "the shared limiter is exhausted");
        clock.advance(Duration::from_secs(1));
        assert_eq!(take(&table, 4, rate, 20), Ok(0), "2 is unused again and dropped for 4");
        assert_eq!(take(&table, 1, rate, 11), Err(Some(Duration::from_millis(100))), "1 was not dropped");
        assert!(!table.of(3, Some(rate)).enter(1), "nor was 3");
    }

    #[test]
    fn a_barred_subject_is_refused_until_its_time_is_over_and_not_dropped() {
        let (table, clock, rate) = table(1);
        table.bar(&table.of(1, Some(rate)), Duration::from_secs(5));
        assert_eq!(table.barred(1), Some(Duration::from_secs(5)));
        assert_eq!(table.barred(2), None);
        clock.advance(Duration::from_secs(4));
        take(&table, 2, rate, 1).unwrap();
        assert_eq!(table.barred(1), Some(Duration::from_secs(1)));
        clock.advance(Duration::from_secs(1));
        assert_eq!(table.barred(1), None);
    }

    #[test]
    fn reading_the_units_left_takes_nothing() {
        let (table, clock, rate) = table(10);
        assert_eq!(table.left(1, rate), None);
        assert_eq!(take(&table, 1, rate, 15), Ok(5));
        assert_eq!([table.left(1, rate), table.left(1, rate)], [Some(5), Some(5)]);
        clock.advance(Duration::from_millis(350));
        assert_eq!(table.left(1, rate), Some(8));
        clock.advance(Duration::from_mins(1));
        assert_eq!(table.left(1, rate), Some(20));
    }

    #[test]
    fn a_limiter_shared_by_two_scopes_has_a_policy_for_each() {
        let (table, _, rate) = table(1);
        let limiter = table.of(1, Some(rate));
        for _ in 0..2 {
            assert_eq!(limiter.policy(LimitScope::Key, rate), r#""key";q=20;w=2"#);
            assert_eq!(limiter.policy(LimitScope::Agent, rate), r#""agent";q=20;w=2"#);
        }
    }

    #[test]
    fn a_refusal_names_the_rate() {
        let (table, _, rate) = table(1);
        assert_eq!(take(&table, 1, rate, 20), Ok(0));
        let refused = table.of(1, Some(rate)).take(NonZeroU32::MIN, table.now());
        assert_eq!(refused, Err(Refused { rate, wait: Some(Duration::from_millis(100)) }));
    }
}
