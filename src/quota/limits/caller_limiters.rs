//! The limiters of a caller, remembered with the caller: looking them up by key, agent and tenant takes longer than
//! charging them.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use super::table::Limiter;
use crate::model::allocated::behind_arc;
use crate::model::fault::LimitScope;

/// The limiters that a request is charged to: of the key or the address, of the agent, and of the tenant if the credential
/// belongs to it.
pub(super) type Charged = [Option<(LimitScope, Arc<Limiter>)>; 3];

/// The limiters that the first request of a caller with a credential was charged to. They are looked up for each request
/// again once a table has dropped or replaced one of them.
#[derive(Debug, Clone, Default)]
pub struct CallerLimiters(OnceLock<[Option<(LimitScope, Weak<Limiter>)>; 3]>);

impl CallerLimiters {
    /// The most memory that remembered limiters take which their table has dropped.
    pub const MOST_RETAINED: usize = 3 * behind_arc(size_of::<Limiter>());

    /// The limiters, if the tables still have all of them.
    pub(super) fn get(&self) -> Option<Charged> {
        let mut charged = [const { None }; 3];
        for (slot, known) in charged.iter_mut().zip(self.0.get()?) {
            if let Some((scope, limiter)) = known {
                *slot = Some((*scope, limiter.upgrade()?));
            }
        }
        // They are taken before it is read whether they are retired.
        fence(Ordering::SeqCst);
        let is_retired = |(_, limiter): &(_, Arc<Limiter>)| limiter.is_retired();
        (!charged.iter().flatten().any(is_retired)).then_some(charged)
    }

    /// Remembers the limiters that were found first, unless subjects that have no limiter of their own share one of them.
    pub(super) fn remember(&self, charged: &Charged) {
        if self.0.get().is_some() || charged.iter().flatten().any(|(_, limiter)| limiter.is_retired()) {
            return;
        }
        let weak = |found: &Option<(LimitScope, Arc<Limiter>)>| {
            found.as_ref().map(|(scope, limiter)| (*scope, Arc::downgrade(limiter)))
        };
        self.0.get_or_init(|| charged.each_ref().map(weak));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Duration;

    use governor::clock::{Clock, FakeRelativeClock};

    use super::{CallerLimiters, Limiter};
    use crate::model::fault::LimitScope;
    use crate::model::limits::Rate;
    use crate::quota::limits::table::Table;

    type Subjects = Table<u32, FakeRelativeClock>;

    fn rate(burst: u32) -> Option<Rate> {
        Rate::new(10, burst)
    }

    /// A table with room for one limiter.
    fn table() -> (Subjects, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Table::new(1, rate(20), (clock.clone(), clock.now())), clock)
    }

    fn remembered(limiter: &Arc<Limiter>) -> CallerLimiters {
        let limiters = CallerLimiters::default();
        limiters.remember(&[Some((LimitScope::Key, Arc::clone(limiter))), None, None]);
        limiters
    }

    fn get(limiters: &CallerLimiters) -> Option<Arc<Limiter>> {
        limiters.get()?.into_iter().flatten().map(|(_, limiter)| limiter).next()
    }

    #[test]
    fn remembered_limiter_is_that_of_the_table() {
        let (table, _) = table();
        let limiters = remembered(&table.of(1, rate(20)));
        assert!(Arc::ptr_eq(&get(&limiters).unwrap(), &table.of(1, rate(20))));
        assert!(CallerLimiters::default().get().is_none());
    }

    #[test]
    fn limiter_that_was_replaced_or_dropped_is_looked_up_again() {
        let (table, clock) = table();
        let limiters = remembered(&table.of(1, rate(20)));
        let in_use = get(&limiters);
        table.of(1, rate(30));
        assert!(get(&limiters).is_none(), "another rate, while a request has the limiter");
        drop(in_use);
        let limiters = remembered(&table.of(1, rate(30)));
        table.of(2, rate(20));
        assert!(get(&limiters).is_none(), "dropped to make room");
        clock.advance(Duration::from_secs(1));
        let limiters = remembered(&table.of(2, rate(20)));
        let in_use = get(&limiters);
        table.of(3, rate(20));
        assert!(get(&limiters).is_some(), "not dropped while a request has it");
        drop(in_use);
    }

    #[test]
    fn limiter_that_subjects_share_is_not_remembered() {
        let (table, _) = table();
        assert!(table.of(1, rate(20)).enter(1));
        let limiters = remembered(&table.of(2, rate(20)));
        assert!(limiters.get().is_none());
    }

    #[test]
    fn units_are_taken_from_one_limiter_also_while_the_table_drops_it() {
        const TIMES: u32 = 20_000;
        let (table, clock) = table();
        let (table, both) = (Arc::new(table), Arc::new(Barrier::new(2)));
        let others = {
            let (table, both) = (Arc::clone(&table), Arc::clone(&both));
            thread::spawn(move || {
                for _ in 0..TIMES {
                    both.wait();
                    // Drops the limiter of 1 if it is unused.
                    table.of(2, rate(20));
                    both.wait();
                }
            })
        };
        let mut remembered_ones = 0;
        for _ in 0..TIMES {
            // All units are restored, and 2 is dropped for 1.
            clock.advance(Duration::from_secs(10));
            let limiters = remembered(&table.of(1, rate(20)));
            clock.advance(Duration::from_secs(1));
            both.wait();
            let known = get(&limiters);
            if let Some(limiter) = &known {
                remembered_ones += 1;
                assert!(limiter.take(NonZeroU32::MIN, table.now()).is_ok());
            }
            both.wait();
            if known.is_some() {
                assert_eq!(table.left(1, rate(20).unwrap()), Some(19));
            }
        }
        others.join().unwrap();
        assert!(remembered_ones > 0);
    }
}
