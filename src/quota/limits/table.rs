//! A bounded table of limiters, by their subject.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use governor::clock::Clock;

use super::limiter::{Limiter, LimiterClock};
use crate::model::limits::Rate;

/// The minimum time between two searches for limiters to drop, in nanoseconds.
const LOOK_AGAIN_NANOS: u64 = 100_000_000;

/// The maximum number of rates that have a shared limiter of exactly that rate. Above it they are [`rounded`].
const MAX_SHARED: usize = 1_024;

/// The limiters of one kind of subject.
///
/// Their number is bounded. To make space, limiters are dropped that a new one would equal, so that dropping restores
/// no units; if there are none, new subjects share a limiter with all others of the same rate.
#[derive(Debug)]
pub(super) struct Table<K: Hash + Eq, C: Clock> {
    /// Clients choose addresses, but cannot compute their hashes: the hasher has a random seed in each process.
    limiters: DashMap<K, Arc<Limiter>, RandomState>,
    most: usize,
    /// Limiters that subjects without space share, by rate.
    shared: DashMap<Option<Rate>, Arc<Limiter>, RandomState>,
    /// When limiters to drop were searched last.
    looked: AtomicU64,
    clock: LimiterClock<C>,
}

impl<K: Hash + Eq + Copy, C: Clock + Clone> Table<K, C> {
    /// At most `most` limiters of subjects.
    pub(super) fn new(most: usize, clock: LimiterClock<C>) -> Self {
        let (limiters, shared) = (DashMap::default(), DashMap::default());
        Self { limiters, most, shared, looked: AtomicU64::new(0), clock }
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
                    let successor = entry.get().successor(rate, self.clock.now());
                    entry.insert(Arc::new(successor)).set_retired();
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
        let create = || Arc::new(Limiter::shared(rate));
        Arc::clone(&self.shared.entry(rate).or_insert_with(create))
    }

    /// The units that a subject has left; `None` if it has used nothing.
    pub(super) fn left(&self, holder: K, rate: Rate) -> Option<u32> {
        self.limiters.get(&holder)?.left(rate, self.clock.now())
    }

    /// The remaining time for which a subject is refused, if it is.
    pub(super) fn barred(&self, holder: K) -> Option<Duration> {
        self.limiters.get(&holder)?.barred(self.clock.now())
    }

    /// The number of limiters.
    pub(super) fn len(&self) -> usize {
        self.limiters.len()
    }

    /// Whether there is space for one more, after dropping unused limiters.
    fn has_room(&self) -> bool {
        if self.limiters.len() < self.most {
            return true;
        }
        let (now, looked) = (self.clock.now(), self.looked.load(Ordering::Relaxed));
        let due = looked == 0 || now >= looked.saturating_add(LOOK_AGAIN_NANOS);
        let mine = due
            && self.looked.compare_exchange(looked, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if mine {
            // `retire` would mark a limiter in use as retired for a moment, which its callers would notice.
            self.limiters.retain(|_, limiter| !(limiter.is_unused(now) && limiter.retire(now)));
        }
        self.limiters.len() < self.most
    }
}

/// The next lower power of two of units a second, with the next higher one as the burst, which no request that is allowed
/// exceeds. There are a few hundred such rates, however many an owner sets.
fn rounded(Rate { per_second, burst }: Rate) -> Rate {
    let refilled = NonZeroU32::new(1 << per_second.ilog2()).unwrap_or(per_second);
    Rate { per_second: refilled, burst: burst.checked_next_power_of_two().unwrap_or(burst) }
}

#[cfg(test)]
mod tests;
