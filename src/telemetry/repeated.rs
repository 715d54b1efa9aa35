//! The log of work that is repeated while it fails, such as a write that waits for the database.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Logs the first of several failures in a row as a warning, the next ones for debugging, and the first success after them.
/// Without it an outage logs each attempt of each replica.
#[derive(Debug, Default)]
pub struct RepeatedWork {
    failing: AtomicBool,
}

impl RepeatedWork {
    /// Logs what the result of `work` changes.
    pub fn record<T, E: Display>(&self, work: &'static str, result: &Result<T, E>) {
        match result {
            // No write to the shared flag while nothing fails.
            Ok(_) if !self.failing.load(Ordering::Relaxed) => {}
            Ok(_) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("{work} recovered");
                }
            }
            Err(error) if self.failing.swap(true, Ordering::Relaxed) => {
                tracing::debug!(%error, "{work} failed again; retried later");
            }
            Err(error) => tracing::warn!(%error, "{work} failed; retried later"),
        }
    }
}

/// An event that requests cause, which is logged once in an interval: clients that retry would fill the log.
#[derive(Debug)]
pub struct RareEvent {
    interval: Duration,
    logged: Mutex<Option<Instant>>,
}

impl RareEvent {
    /// An event that is due once in `interval`.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, logged: Mutex::new(None) }
    }

    /// Whether the event is to be logged now.
    pub fn is_due(&self) -> bool {
        let (now, mut logged) = (Instant::now(), self.logged.lock());
        let is_due = logged.is_none_or(|at| now - at >= self.interval);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RareEvent;

    #[test]
    fn event_is_due_once_in_its_interval() {
        let (rare, frequent) = (RareEvent::new(Duration::MAX), RareEvent::new(Duration::ZERO));
        assert_eq!([(); 3].map(|()| rare.is_due()), [true, false, false]);
        assert_eq!([(); 3].map(|()| frequent.is_due()), [true; 3]);
    }
}
