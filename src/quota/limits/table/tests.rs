//! Tests of the table.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;

use super::{MAX_SHARED, Table};
use crate::model::limits::Rate;
use crate::quota::limits::limiter::{LimitRefusal, LimiterClock, SECOND, UnitsLeft};

fn table(most: usize) -> (Table<u32, FakeRelativeClock>, FakeRelativeClock, Rate) {
    let clock = FakeRelativeClock::default();
    let rate = Rate::new(10, 20).unwrap();
    (Table::new(most, LimiterClock::new(clock.clone())), clock, rate)
}

fn take(
    table: &Table<u32, FakeRelativeClock>,
    holder: u32,
    rate: Rate,
    units: u32,
) -> Result<u32, Option<Duration>> {
    let taken = table.of(holder, Some(rate)).take(NonZeroU32::new(units).unwrap(), table.clock.now());
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
    assert_eq!(table.of(1, None).take(NonZeroU32::MAX, table.clock.now()), Ok(None));
}

#[test]
fn a_new_rate_replaces_the_limiter_and_keeps_requests_in_flight_and_units_used() {
    let (table, clock, rate) = table(10);
    assert_eq!(take(&table, 1, rate, 20), Ok(0));
    assert!(table.of(1, Some(rate)).enter(1));
    let wider = Rate::new(100, 200).unwrap();
    let one = NonZeroU32::MIN;
    assert_eq!(
        table.of(1, Some(wider)).take(one, table.clock.now()),
        Ok(Some(UnitsLeft { rate: wider, units: 179 }))
    );
    assert!(!table.of(1, Some(wider)).enter(1));
    assert!(!table.of(1, None).enter(1), "after another change too");
    table.of(1, Some(rate)).leave();
    assert!(table.of(1, Some(wider)).enter(1));
    // 21 of 200 were taken: more than the narrower rate has.
    let narrower = Rate::new(1, 10).unwrap();
    assert_eq!(take(&table, 2, wider, 21), Ok(179));
    assert_eq!(take(&table, 2, narrower, 1), Err(Some(Duration::from_secs(12))));
    clock.advance(Duration::from_secs(15));
    for rate in [wider, narrower, rate, narrower] {
        table.of(2, Some(rate));
    }
    assert_eq!(take(&table, 2, narrower, 5), Err(Some(Duration::from_secs(1))), "no change restores units");
    assert_eq!(take(&table, 2, narrower, 4), Ok(0));
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
fn subjects_without_space_share_a_limiter_of_their_own_rate() {
    let (table, _, rate) = table(1);
    assert_eq!(take(&table, 1, rate, 1), Ok(19));
    let narrower = Rate::new(1, 2).unwrap();
    assert_eq!(take(&table, 2, narrower, 2), Ok(0));
    assert_eq!(take(&table, 3, narrower, 1), Err(Some(Duration::from_secs(1))));
    assert_eq!(take(&table, 4, rate, 20), Ok(0), "a limiter of another rate");
    assert_eq!(table.of(5, None).take(NonZeroU32::MAX, table.clock.now()), Ok(None));
}

#[test]
fn rates_beyond_those_with_a_shared_limiter_are_rounded() {
    let (table, _, rate) = table(1);
    assert_eq!(take(&table, 1, rate, 1), Ok(19));
    for nth in (1..).take(MAX_SHARED) {
        take(&table, 2, Rate::new(nth, 5_000).unwrap(), 1).unwrap();
    }
    assert_eq!(table.shared.len(), MAX_SHARED);
    let beyond = Rate::new(3_000, 5_000).unwrap();
    assert_eq!(take(&table, 3, beyond, 5_000), Ok(8_192 - 5_000), "the burst is rounded up");
    let similar = Rate::new(2_100, 6_000).unwrap();
    assert_eq!(take(&table, 4, similar, 3_192), Ok(0), "one limiter for both");
    let wait = Duration::from_nanos(2_048 * (SECOND / 2_048));
    assert_eq!(take(&table, 4, similar, 2_048), Err(Some(wait)), "the units a second are rounded down");
    for nth in 1..=20_000 {
        take(&table, 5, Rate::new(nth, 1_000_000 - nth).unwrap(), 1).ok();
    }
    // Above: 2,048 a second with a burst of 8,192. Here: 1 to 16,384 a second with a burst of 1,048,576.
    assert_eq!(table.shared.len(), MAX_SHARED + 1 + 15);
}

#[test]
fn a_barred_subject_is_refused_until_its_time_is_over_and_not_dropped() {
    let (table, clock, rate) = table(1);
    table.of(1, Some(rate)).bar(Duration::from_secs(5), table.clock.now());
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
fn a_refusal_names_the_rate() {
    let (table, _, rate) = table(1);
    assert_eq!(take(&table, 1, rate, 20), Ok(0));
    let refused = table.of(1, Some(rate)).take(NonZeroU32::MIN, table.clock.now());
    assert_eq!(refused, Err(LimitRefusal { rate, wait: Some(Duration::from_millis(100)) }));
}
