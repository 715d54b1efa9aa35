//! The shares of one agent or tenant on this replica.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use time::{Date, OffsetDateTime};
use tokio::task::JoinHandle;

use super::period_limit::PeriodLimit;
use crate::model::quota::{Period, QuotaRequest, QuotaShare};
use crate::store::StoreError;

/// How long a quota counts as exhausted before the database is queried again: another replica may have returned a
/// share.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A task that reserves a share and adds it to its holder.
pub(super) type QuotaReservation = JoinHandle<Result<(), StoreError>>;

/// An agent or a tenant.
#[derive(Debug, Default)]
pub(super) struct QuotaHolder {
    day: Mutex<ShareLeft>,
    month: Mutex<ShareLeft>,
    /// The reservation that runs, if any. Locked while its result is waited for, and while a share is returned.
    pub(super) reservation: tokio::sync::Mutex<Option<QuotaReservation>>,
    /// Whether calls were spent since unused shares were last returned.
    pub(super) touched: AtomicBool,
}

/// The state of one period.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShareLeft {
    /// The first day of the period; `None` before anything is charged.
    pub(super) start: Option<Date>,
    /// The remaining share; negative if more was used than reserved.
    pub(super) share: QuotaShare,
    /// When the database had nothing left, and the limits at that time.
    pub(super) exhausted: Option<(Instant, PeriodLimit)>,
}

/// The outcome of an attempt to spend from memory.
pub(super) enum Taken {
    Yes,
    /// The share is too small.
    Short(QuotaRequest),
    /// The quota is exhausted on all replicas.
    No(&'static str),
}

/// The name of a quota in errors.
pub(super) fn name(period: Period, calls: bool) -> &'static str {
    match (period, calls) {
        (Period::Day, true) => "daily call",
        (Period::Day, false) => "daily byte",
        (Period::Month, true) => "monthly call",
        (Period::Month, false) => "monthly byte",
    }
}

impl ShareLeft {
    /// The state of a period that begins.
    fn of(start: Date) -> Self {
        Self { start: Some(start), ..Self::default() }
    }

    /// Subtracts bytes that are known only after a request. They may exceed the share, and count in the period that has
    /// begun by then.
    pub(super) fn charge_bytes(&mut self, start: Date, bytes: i64) {
        // Requests that end together may be charged in another order: the period does not go back.
        if self.start.is_none_or(|known| known < start) {
            *self = Self::of(start);
        }
        self.share.bytes = self.share.bytes.saturating_sub(bytes);
    }

    /// Adds a share that was reserved under `most`, unless its period is over.
    pub(super) fn add(&mut self, need: &QuotaRequest, most: PeriodLimit, share: QuotaShare) {
        if self.start != Some(need.start) {
            return;
        }
        self.share.calls += share.calls;
        self.share.bytes += share.bytes;
        let enough = share.calls >= need.calls.1 && share.bytes >= need.bytes.1;
        self.exhausted = (!enough).then(|| (Instant::now(), most));
    }

    /// Adds what was not returned, unless its period is over.
    pub(super) fn restore(&mut self, start: Date, share: QuotaShare) {
        if self.start == Some(start) {
            self.share.calls += share.calls;
            self.share.bytes += share.bytes;
        }
    }

    /// Whether the share has too few calls or too few bytes.
    fn short(&self, most: PeriodLimit, calls: i64) -> (bool, bool) {
        let calls = most.calls.is_some() && self.share.calls < calls;
        (calls, most.bytes.is_some() && self.share.bytes <= 0)
    }

    /// Whether the database recently reported the quota under these limits as exhausted.
    fn is_exhausted(&self, most: PeriodLimit) -> bool {
        self.exhausted.is_some_and(|(when, under)| under == most && when.elapsed() < RETRY_INTERVAL)
    }

    /// The quota that one call would find exhausted, according to the memory of this replica.
    pub(super) fn known_exhausted(
        &self,
        period: Period,
        most: PeriodLimit,
        at: OffsetDateTime,
    ) -> Option<&'static str> {
        let (short_of_calls, short_of_bytes) = self.short(most, 1);
        let known = self.start == Some(period.start(at)) && self.is_exhausted(most);
        (known && (short_of_calls || short_of_bytes)).then(|| name(period, short_of_calls))
    }

    pub(super) fn take(
        &mut self,
        period: Period,
        most: PeriodLimit,
        calls: i64,
        at: OffsetDateTime,
    ) -> Taken {
        let start = period.start(at);
        if self.start != Some(start) {
            *self = Self::of(start);
        }
        let (short_of_calls, short_of_bytes) = self.short(most, calls);
        if !short_of_calls && !short_of_bytes {
            self.share.calls -= if most.calls.is_some() { calls } else { 0 };
            return Taken::Yes;
        }
        if self.is_exhausted(most) {
            return Taken::No(name(period, short_of_calls));
        }
        let needed = |short: bool, needed: i64| if short { needed } else { 0 };
        Taken::Short(QuotaRequest {
            period,
            start,
            calls: (most.calls, needed(short_of_calls, calls - self.share.calls)),
            bytes: (most.bytes, needed(short_of_bytes, 1 - self.share.bytes)),
        })
    }
}

impl QuotaHolder {
    pub(super) fn left(&self, period: Period) -> &Mutex<ShareLeft> {
        match period {
            Period::Day => &self.day,
            Period::Month => &self.month,
        }
    }

    /// Charges calls that were admitted on credit.
    pub(super) fn charge_credit(&self, period: Period, most: PeriodLimit, calls: i64) {
        let share = &mut self.left(period).lock().share;
        share.calls = share.calls.saturating_sub(if most.calls.is_some() { calls } else { 0 });
    }

    /// Adds calls that were spent in vain at `at`, unless the period they were spent in is over.
    pub(super) fn refund(&self, period: Period, most: PeriodLimit, calls: i64, at: OffsetDateTime) {
        let mut left = self.left(period).lock();
        if most.calls.is_some() && left.start == Some(period.start(at)) {
            left.share.calls = left.share.calls.saturating_add(calls);
        }
    }

    /// Whether nothing is left to return, and nothing was spent since the last return.
    pub(super) fn is_idle(&self) -> bool {
        let nothing = |left: &Mutex<ShareLeft>| left.lock().share == QuotaShare::default();
        !self.touched.load(Ordering::Relaxed) && nothing(&self.day) && nothing(&self.month)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::{Period, PeriodLimit, QuotaHolder, QuotaShare, ShareLeft, Taken};

    #[test]
    fn calls_spent_in_vain_are_added_to_their_own_period_only() {
        let (holder, most) = (QuotaHolder::default(), PeriodLimit { calls: Some(9), bytes: None });
        let (before, after) = (datetime!(2026-11-23 23:59 UTC), datetime!(2026-11-24 00:00 UTC));
        for (begun, left) in [(before, 1), (after, 0)] {
            let taken = holder.left(Period::Day).lock().take(Period::Day, most, 1, begun);
            assert!(matches!(taken, Taken::Short(_)));
            holder.refund(Period::Day, most, 1, before);
            assert_eq!(holder.left(Period::Day).lock().share, QuotaShare { calls: left, bytes: 0 });
        }
    }

    #[test]
    fn bytes_are_charged_to_the_latest_period() {
        let (before, after) = (datetime!(2026-11-23 23:59 UTC), datetime!(2026-11-24 00:00 UTC));
        let mut left = ShareLeft::default();
        for (at, bytes) in [(before, -1), (after, -1), (before, -2)] {
            left.charge_bytes(Period::Day.start(at), 1);
            assert_eq!(left.share, QuotaShare { calls: 0, bytes });
        }
    }
}
