//! Counters of the audit log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::histogram::{DurationCounts, DurationHistogram};

/// Counters and state of the audit log of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditStats {
    /// Number of events lost because neither the database nor the spill file could take them.
    pub lost: u64,
    /// Number of events in memory that are not durable yet.
    pub waiting: u64,
    /// How long the oldest of these has been waiting.
    pub oldest: Duration,
    /// Bytes of spill files that are not in the log yet.
    pub spilled_bytes: u64,
    /// Number of events that were aggregated into shared rows.
    pub aggregated: u64,
    /// Number of rows that the database rejected as invalid data.
    pub quarantined: u64,
    /// Number of corruptions found in spill files.
    pub damaged: u64,
    /// Number of rows added to the log, including those of adopted spill files.
    pub written: u64,
    /// Whether this process has a spill file.
    pub has_file: bool,
}

/// The counters, updated by the writer and read for metrics.
#[derive(Debug, Default)]
pub(super) struct AuditMetrics {
    pending: AtomicU64,
    /// When the oldest of the pending events was queued.
    pending_since: Mutex<Option<Instant>>,
    spilled_bytes: AtomicU64,
    written: AtomicU64,
    has_file: AtomicBool,
    aggregated: AtomicU64,
    quarantined: AtomicU64,
    damaged: AtomicU64,
    writes: DurationHistogram,
}

impl AuditMetrics {
    /// Records whether this process has a spill file.
    pub(super) fn set_has_file(&self, has_file: bool) {
        self.has_file.store(has_file, Ordering::Relaxed);
    }

    /// Sets the number of events that were taken from the queue and are not durable yet, and when the oldest
    /// was queued.
    pub(super) fn set_pending(&self, events: usize, since: Option<Instant>) {
        self.pending.store(events as u64, Ordering::Relaxed);
        *self.pending_since.lock() = since;
    }

    /// Sets the number of bytes that wait in spill files.
    pub(super) fn set_spilled_bytes(&self, bytes: u64) {
        self.spilled_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts rows that were added to the log.
    pub(super) fn add_written(&self, rows: i64) {
        self.written.fetch_add(u64::try_from(rows).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Counts an aggregated event.
    pub(super) fn add_aggregated(&self) {
        self.aggregated.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a quarantined row.
    pub(super) fn add_quarantined(&self) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a corruption of a spill file.
    pub(super) fn add_damage(&self) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts how long a write of queued events took until they were durable.
    pub(super) fn count_write(&self, took: Duration) {
        self.writes.count(took);
    }

    /// How long the writes of queued events took.
    pub(super) fn writes(&self) -> DurationCounts {
        self.writes.counts()
    }

    /// The counters, together with those of the queue.
    pub(super) fn stats(&self, queued: usize, queued_since: Option<Instant>, lost: u64) -> AuditStats {
        let oldest = self.pending_since.lock().or(queued_since);
        AuditStats {
            lost,
            waiting: queued as u64 + self.pending.load(Ordering::Relaxed),
            oldest: oldest.map(|since| since.elapsed()).unwrap_or_default(),
            spilled_bytes: self.spilled_bytes.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            has_file: self.has_file.load(Ordering::Relaxed),
            aggregated: self.aggregated.load(Ordering::Relaxed),
            quarantined: self.quarantined.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }
}
