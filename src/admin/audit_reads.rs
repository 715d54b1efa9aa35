//! Reads of the audit log. Repeated ones, as by `waggle audit tail -f`, have no audit row of their own.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::audit::AuditRecorder;
use crate::http::context::RequestContext;
use crate::http::intake::SharedContext;
use crate::model::audit::digest::Digest;

/// How long after a read an equal one counts as repeated.
const REPEATS_WITHIN: Duration = Duration::from_mins(1);
/// How many reads are remembered; further ones have a row each.
const MAX_READS: usize = 1_024;

/// The audit log as its readers use it.
#[derive(Debug)]
pub struct AuditReader {
    /// The audit log.
    pub(super) log: Arc<AuditRecorder>,
    /// Recent reads of it.
    pub(super) recent: RecentReads,
}

impl AuditReader {
    /// Creates a reader of this log.
    pub fn new(log: Arc<AuditRecorder>) -> Self {
        Self { log, recent: RecentReads::default() }
    }
}

/// Recent reads, by caller, address and query.
#[derive(Debug, Default)]
pub(super) struct RecentReads {
    recent: Mutex<HashMap<Digest, Instant>>,
}

impl RecentReads {
    /// Omits the audit row of a call if the same caller at the same address made the same read in the last minute.
    pub(super) fn omit_repeated(&self, call: &SharedContext, query: &impl Debug) {
        let read =
            call.with(|RequestContext { event, .. }| format!("{:?} {} {query:?}", event.actor, event.client));
        if self.repeats(Digest::of(read.as_bytes()), Instant::now()) {
            call.omit_row();
        }
    }

    fn repeats(&self, read: Digest, now: Instant) -> bool {
        let mut recent = self.recent.lock();
        if let Some(last) = recent.get_mut(&read)
            && now.duration_since(*last) < REPEATS_WITHIN
        {
            *last = now;
            return true;
        }
        if recent.len() >= MAX_READS {
            recent.retain(|_, last| now.duration_since(*last) < REPEATS_WITHIN);
        }
        if recent.len() < MAX_READS {
            recent.insert(read, now);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{MAX_READS, REPEATS_WITHIN, RecentReads};
    use crate::model::audit::digest::Digest;

    #[test]
    fn same_read_repeats_until_it_pauses_for_a_minute() {
        let (reads, start) = (RecentReads::default(), Instant::now());
        let repeats =
            |read: &[u8], seconds| reads.repeats(Digest::of(read), start + Duration::from_secs(seconds));
        assert_eq!([repeats(b"a", 0), repeats(b"b", 0)], [false, false]);
        assert_eq!([repeats(b"a", 59), repeats(b"a", 118), repeats(b"a", 178)], [true, true, false]);
        assert!(!repeats(b"b", 60));
    }

    #[test]
    fn read_that_finds_no_room_repeats_nothing() {
        let (reads, start) = (RecentReads::default(), Instant::now());
        for number in 0..MAX_READS {
            assert!(!reads.repeats(Digest::of(&number.to_be_bytes()), start));
        }
        let late = Digest::of(b"late");
        assert_eq!([reads.repeats(late, start), reads.repeats(late, start)], [false, false]);
        let later = start + REPEATS_WITHIN;
        assert_eq!([reads.repeats(late, later), reads.repeats(late, later)], [false, true]);
    }
}
