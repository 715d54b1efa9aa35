//! Clocks that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};
use waggle::model::system::Clock;

/// A clock that only a test advances.
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn at(start: OffsetDateTime) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(start.unix_timestamp())))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.whole_seconds(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

/// The system clock plus an offset.
#[derive(Default)]
pub(crate) struct ShiftedClock(AtomicI64);

impl ShiftedClock {
    pub(crate) fn shift(&self, by: Duration) {
        self.0.fetch_add(by.whole_seconds(), Ordering::Relaxed);
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc() + Duration::seconds(self.0.load(Ordering::Relaxed))
    }
}
