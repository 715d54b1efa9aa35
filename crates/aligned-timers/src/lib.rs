//! Timer coalescing: timers of background tasks fire together, so that an idle process wakes up less often.
//!
//! A process with ten tasks that look for work every few hundred milliseconds wakes up for each of them, and for most of them
//! twice: tokio keeps a timer that is more than 64 ms away in a slot of that width, and wakes up when the slot begins to sort
//! what it holds by the millisecond. Waking up costs more than such a look. So these timers are rounded up to a multiple of
//! [`GRID`] since the runtime was built: they fire when a slot begins, all of one slot at once.
//!
//! Short waits are left as they are: a timer is late by at most a third of its wait.
//!
//! ```
//! use std::time::Duration;
//!
//! aligned_timers::set_origin();
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! runtime.block_on(async {
//!     let before = tokio::time::Instant::now();
//!     let fires = aligned_timers::deadline(Duration::from_millis(250));
//!     let waits = fires - before;
//!     assert!(waits >= Duration::from_millis(249) && waits <= Duration::from_millis(315));
//! });
//! ```

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// The distance between the times at which these timers fire: the width of a slot of tokio's timers of up to four seconds.
pub const GRID: Duration = Duration::from_millis(64);
/// Waits that are shorter are not rounded.
const SHORTEST: Duration = Duration::from_millis(3 * 64);

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Makes the grid begin now, unless it has begun. To be called less than a millisecond before the runtime is built, whose
/// timers have that precision; otherwise they still fire together, but not when a slot of tokio's begins.
pub fn set_origin() {
    let _ = origin();
}

/// When a timer fires that is to wait for so long.
///
/// # Panics
/// Like `Instant + Duration`, if there is no such time.
pub fn deadline(wait: Duration) -> Instant {
    let (now, origin) = (Instant::now(), origin());
    if wait < SHORTEST { now + wait } else { origin + round_up(now.saturating_duration_since(origin) + wait) }
}

/// Ticks at once, then after a period less at most [`GRID`], and then in this period, rounded up. Ticks that are missed are
/// skipped.
///
/// # Panics
/// If the period is zero.
pub fn interval(period: Duration) -> Interval {
    let (now, origin) = (Instant::now(), origin());
    let mut interval = if period < SHORTEST {
        interval_at(now, period)
    } else {
        // In the past, so that it ticks at once.
        let begun = round_up(now.saturating_duration_since(origin)).saturating_sub(GRID);
        interval_at(origin + begun, round_up(period))
    };
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

fn origin() -> Instant {
    *ORIGIN.get_or_init(Instant::now)
}

fn round_up(time: Duration) -> Duration {
    let nanos = time.as_nanos().div_ceil(GRID.as_nanos()).saturating_mul(GRID.as_nanos());
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::{GRID, SHORTEST, deadline, interval, set_origin};

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Advances the paused clock past the beginning of the grid, which is when one of these tests began, perhaps not this one.
    async fn pass_origin() {
        set_origin();
        advance(ms(10_005)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_begin_at_different_times_fire_together() {
        pass_origin().await;
        let first = deadline(ms(250));
        for _ in 0..100 {
            advance(ms(7)).await;
            let apart = deadline(ms(250)) - first;
            assert_eq!(apart.as_nanos() % GRID.as_nanos(), 0, "{apart:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_timer_is_early_or_late_by_more_than_a_third_of_its_wait() {
        pass_origin().await;
        for wait in (1..2_000).map(ms) {
            advance(ms(1)).await;
            let waits = deadline(wait) - Instant::now();
            assert!(waits >= wait && waits < wait + wait / 3 + ms(1), "{wait:?}: {waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_waits_are_not_rounded() {
        pass_origin().await;
        let wait = ms(191);
        assert!(wait < SHORTEST);
        assert_eq!(deadline(wait), Instant::now() + wait);
        let mut ticks = interval(wait);
        assert_eq!(ticks.tick().await, Instant::now());
        assert_eq!(ticks.period(), wait);
    }

    #[tokio::test(start_paused = true)]
    async fn interval_ticks_at_once_and_then_with_timers_and_skips_what_is_missed() {
        pass_origin().await;
        let (began, timer) = (Instant::now(), deadline(ms(250)));
        let mut ticks = interval(ms(1_000));
        let first = ticks.tick().await;
        assert_eq!(Instant::now(), began, "at once");
        assert_eq!((timer - first).as_nanos() % GRID.as_nanos(), 0);
        assert_eq!(ticks.tick().await - first, ms(1_024));
        advance(ms(5_000)).await;
        ticks.tick().await;
        assert_eq!(ticks.tick().await - first, ms(6 * 1_024), "one of those missed");
    }
}
