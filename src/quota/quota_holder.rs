//! The shares of one agent or tenant on this replica.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use time::{Date, OffsetDateTime};

use super::period_limit::PeriodLimit;
use crate::model::limits::{Period, QuotaRequest, QuotaShare};

/// How long a quota counts as exhausted before the database is queried again: another replica may have returned a
/// share.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An agent or a tenant.
#[derive(Debug, Default)]
pub(super) struct Holder {
    pub(super) day: Mutex<Left>,
    pub(super) month: Mutex<Left>,
    /// Held while a share is reserved or returned.
    pub(super) taking: tokio::sync::Mutex<()>,
    /// Whether calls were spent since unused shares were last returned.
    pub(super) touched: AtomicBool,
}

/// The state of one period.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    /// When the period began; `None` before the first call.
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

impl Left {
    /// Whether the share has too few calls or too few bytes.
    pub(super) fn short(&self, most: PeriodLimit, calls: i64) -> (bool, bool) {
        let calls = most.calls.is_some() && self.share.calls < calls;
        (calls, most.bytes.is_some() && self.share.bytes <= 0)
    }

    /// Whether the database recently reported the quota under these limits as exhausted.
    pub(super) fn is_exhausted(&self, most: PeriodLimit) -> bool {
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
            *self = Self { start: Some(start), ..Self::default() };
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

impl Holder {
    pub(super) fn left(&self, period: Period) -> &Mutex<Left> {
        match period {
            Period::Day => &self.day,
            Period::Month => &self.month,
        }
    }

    pub(super) fn adjust(&self, period: Period, most: PeriodLimit, by: QuotaShare) {
        let share = &mut self.left(period).lock().share;
        if most.calls.is_some() {
            share.calls = share.calls.saturating_add(by.calls);
        }
        if most.bytes.is_some() {
            share.bytes = share.bytes.saturating_add(by.bytes);
        }
    }
}
