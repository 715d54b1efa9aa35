//! How fast bytes are received and decoded.

use std::fmt;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// How much of an unused rate is kept: bytes of this time come at once.
const BURST: Duration = Duration::from_millis(62);

/// A rate in bytes per second that fetches share. Received bytes are charged when they have come, and the next ones are read
/// once these are paid: the peer is slowed down. Fetches read in turn, a part each.
///
/// Only bytes that were received are owed, and a fetch begins once those of others are paid, so that what is owed is at most
/// a part for each fetch in progress.
pub struct Pace {
    per_second: NonZeroU64,
    debt: Mutex<Debt>,
}

/// What is owed for bytes.
struct Debt {
    /// When everything that was charged is paid.
    paid: Instant,
}

impl Debt {
    /// Charges the time that bytes take. Returns when what was owed before is paid, and when all is.
    fn add(&mut self, now: Instant, time: Duration) -> (Instant, Instant) {
        let before = self.paid.max(now.checked_sub(BURST).unwrap_or(now));
        self.paid = before + time;
        (before, self.paid)
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("per_second", &self.per_second).finish_non_exhaustive()
    }
}

impl Pace {
    /// A rate that was not used yet; `None`, which is no limit, for 0.
    pub fn new(bytes_per_second: u64) -> Option<Arc<Self>> {
        let per_second = NonZeroU64::new(bytes_per_second)?;
        let now = Instant::now();
        let debt = Mutex::new(Debt { paid: now.checked_sub(BURST).unwrap_or(now) });
        Some(Arc::new(Self { per_second, debt }))
    }

    /// Waits until what was charged so far is paid: before a fetch begins.
    pub async fn ready(&self) {
        let paid = self.debt.lock().paid;
        wait_until(paid).await;
    }

    /// Charges bytes that were received or decoded, and waits until they are paid.
    pub(crate) async fn take(&self, bytes: usize) {
        wait_until(self.charge(bytes)).await;
    }

    /// Charges bytes that were received or decoded. Returns when they are paid.
    pub(crate) fn charge(&self, bytes: usize) -> Instant {
        let time = self.time(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.debt.lock().add(Instant::now(), time).1
    }

    /// Charges bytes that are about to be read, and waits until what was charged before is paid. If it is dropped meanwhile,
    /// nothing is charged.
    pub(crate) async fn reserve(&self, bytes: u64) {
        let time = self.time(bytes);
        let (before, _) = self.debt.lock().add(Instant::now(), time);
        let mut reserved = Reserved { pace: self, time };
        wait_until(before).await;
        reserved.time = Duration::ZERO;
    }

    fn time(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.per_second.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What is charged for bytes that are not read yet; taken back unless they are going to be.
struct Reserved<'p> {
    pace: &'p Pace,
    time: Duration,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.pace.debt.lock().paid -= self.time;
    }
}

async fn wait_until(paid: Instant) {
    if paid > Instant::now() {
        sleep_until(paid).await;
    }
}

/// The pause of a stream that is polled, until what it has received is paid.
#[derive(Debug, Default)]
pub(crate) struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    /// Waits until the pause is over.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(cx));
            self.0 = None;
        }
        Poll::Ready(())
    }

    /// Charges bytes that were received; begins a pause until they are paid.
    pub(crate) fn charge(&mut self, pace: &Pace, bytes: usize) {
        let paid = pace.charge(bytes);
        if paid > Instant::now() {
            self.0 = Some(Box::pin(sleep_until(paid)));
        }
    }
}

/// Asserts that fetches of so many bytes, which go at so many per second, take their time.
#[cfg(test)]
pub(crate) async fn assert_paced(
    bytes: u64,
    fetch: impl AsyncFn(crate::Bounds<'_>) -> Result<crate::Fetched, crate::FetchError>,
) {
    let pace = Pace::new(bytes);
    let bounds = crate::Bounds { bytes: 1 << 20, entries: 100, since: None, pace: pace.as_ref() };
    let began = Instant::now();
    // Bytes that are charged before they are read are waited for by the next.
    for _ in 0..2 {
        fetch(bounds).await.unwrap();
    }
    let least = Duration::from_secs(1).saturating_sub(BURST * 2);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::{BURST, Debt, Pace};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_are_paid_at_the_rate_whoever_receives_them() {
        let pace = Pace::new(1_000).unwrap();
        let now = Instant::now();
        let mut debt = Debt { paid: now };
        // All at once: each waits for those before it.
        let paid: Vec<_> = (0..8).map(|_| debt.add(now, pace.time(500)).1 - now).collect();
        assert_eq!(paid, (1..=8).map(|turn| turn * SECOND / 2).collect::<Vec<_>>());
        assert_eq!(debt.add(now + SECOND, pace.time(1_000)), (now + 4 * SECOND, now + 5 * SECOND));
        assert!(Pace::new(0).is_none());
    }

    #[test]
    fn unused_rate_is_kept_for_a_moment() {
        let now = Instant::now();
        let mut debt = Debt { paid: now };
        let later = now + 60 * SECOND;
        assert_eq!(debt.add(later, SECOND), (later - BURST, later - BURST + SECOND));
    }

    #[tokio::test]
    async fn what_is_not_read_is_not_owed() {
        let pace = Pace::new(1).unwrap();
        assert_eq!(pace.reserve(3_600).now_or_never(), Some(()));
        let paid = pace.debt.lock().paid;
        for _ in 0..3 {
            assert_eq!(pace.reserve(3_600).now_or_never(), None);
        }
        assert_eq!(pace.debt.lock().paid, paid);
        assert_eq!(pace.ready().now_or_never(), None);
    }
}
