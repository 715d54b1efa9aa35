//! The log of work that is repeated while it fails, such as a write that waits for the database.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

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
            // Without a write to what all share while nothing fails.
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
