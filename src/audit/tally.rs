//! What the audit log counts of itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How the audit log of this process fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditStats {
    /// Events that are lost, since there was no room for them.
    pub lost: u64,
    /// Events in memory that are not safe yet.
    pub waiting: u64,
    /// Bytes of spill files that are not in the log yet.
    pub spilled_bytes: u64,
    /// Events that share a row with others.
    pub aggregated: u64,
    /// Rows that the database refused for what they hold.
    pub quarantined: u64,
    /// Places at which a spill file was corrupt.
    pub damaged: u64,
    /// Rows that were added to the log, those of processes that are no more included.
    pub written: u64,
    /// Whether this process has a spill file.
    pub has_file: bool,
}

/// What the writer counts, for others to read at any time.
#[derive(Debug, Default)]
pub(super) struct Tally {
    held: AtomicU64,
    spilled_bytes: AtomicU64,
    written: AtomicU64,
    has_file: AtomicBool,
    aggregated: AtomicU64,
    quarantined: AtomicU64,
    damaged: AtomicU64,
}

impl Tally {
    /// Whether this process has a spill file.
    pub(super) fn has_file(&self, has_file: bool) {
        self.has_file.store(has_file, Ordering::Relaxed);
    }

    /// So many events were taken from the queue and are not safe yet.
    pub(super) fn hold(&self, events: usize) {
        self.held.store(events as u64, Ordering::Relaxed);
    }

    /// So many bytes wait in files.
    pub(super) fn spill(&self, bytes: u64) {
        self.spilled_bytes.store(bytes, Ordering::Relaxed);
    }

    /// So many rows more are in the log.
    pub(super) fn write(&self, rows: i64) {
        self.written.fetch_add(u64::try_from(rows).unwrap_or_default(), Ordering::Relaxed);
    }

    /// An event shares a row with others.
    pub(super) fn aggregate(&self) {
        self.aggregated.fetch_add(1, Ordering::Relaxed);
    }

    /// A row was refused.
    pub(super) fn quarantine(&self) {
        self.quarantined.fetch_add(1, Ordering::Relaxed);
    }

    /// A spill file is corrupt at one place more.
    pub(super) fn damage(&self) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// What there is to tell, with what the queue knows.
    pub(super) fn stats(&self, queued: usize, lost: u64) -> AuditStats {
        AuditStats {
            lost,
            waiting: queued as u64 + self.held.load(Ordering::Relaxed),
            spilled_bytes: self.spilled_bytes.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            has_file: self.has_file.load(Ordering::Relaxed),
            aggregated: self.aggregated.load(Ordering::Relaxed),
            quarantined: self.quarantined.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }
}
