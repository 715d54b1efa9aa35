//! The last use of sessions: recorded in memory at once, persisted periodically in batches.
//!
//! The persisted last-use time lags by at most half the idle timeout: a use after a longer pause is written at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::model::ids::SessionUid;

/// The maximum number of sessions whose uses wait to be written; further uses are not recorded.
const MAX_SESSIONS: usize = 100_000;
/// The shortest interval between two periodic writes of one session's uses, unless a quarter of the idle timeout is shorter.
const EVERY: Duration = Duration::from_mins(1);
/// The longest interval between two checks for uses to write.
const TICK: Duration = Duration::from_secs(20);

/// The last use of one session. Times in microseconds since 1970.
#[derive(Debug)]
pub(super) struct LastUse {
    used: AtomicI64,
    /// The last use that is persisted.
    written: AtomicI64,
    /// Whether it waits to be written.
    queued: AtomicBool,
}

impl LastUse {
    fn new(used: i64, written: i64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicI64::new(used),
            written: AtomicI64::new(written),
            queued: AtomicBool::new(false),
        })
    }

    /// The last use, in microseconds since 1970.
    pub(super) fn at(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Records that the use at this time is persisted.
    pub(super) fn persisted(&self, at: i64) {
        self.written.fetch_max(at, Ordering::Relaxed);
    }

    /// Whether the idle timeout has passed since the last use.
    pub(super) fn is_idle(&self, now: OffsetDateTime, idle: Duration) -> bool {
        micros(now) - self.used.load(Ordering::Relaxed) >= span(idle)
    }
}

/// The uses that wait to be written.
#[derive(Debug)]
pub(super) struct SessionUses {
    waiting: DashMap<SessionUid, Arc<LastUse>>,
    /// The shortest interval between two periodic writes of one session's uses, in microseconds.
    every: i64,
    /// A use this long after the last persisted one is written at once, in microseconds.
    pause: i64,
    /// The interval of [`tick`](Self::tick).
    tick: Duration,
    soon: Notify,
}

impl SessionUses {
    pub(super) fn new(idle: Duration) -> Self {
        Self {
            waiting: DashMap::new(),
            every: span(EVERY.min(idle / 4)),
            pause: span(idle / 2),
            tick: TICK.min(idle / 4),
            soon: Notify::new(),
        }
    }

    /// The last use of a session read from the database: the persisted one, or a newer one that is not written yet.
    pub(super) fn of(&self, session: SessionUid, written: OffsetDateTime) -> Arc<LastUse> {
        let written = micros(written);
        match self.waiting.get(&session) {
            Some(waiting) => {
                waiting.used.fetch_max(written, Ordering::Relaxed);
                Arc::clone(&waiting)
            }
            None => LastUse::new(written, written),
        }
    }

    /// A use of a session that is not in memory: written with the next batch.
    pub(super) fn unknown(&self, now: OffsetDateTime) -> Arc<LastUse> {
        LastUse::new(micros(now), micros(now) - self.every)
    }

    /// Records a use now.
    pub(super) fn note(&self, session: SessionUid, used: &Arc<LastUse>, now: OffsetDateTime) {
        let now = micros(now);
        used.used.fetch_max(now, Ordering::Relaxed);
        // Always exchanged: the writer exchanges it too, so one of the two observes the other.
        if used.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        self.queue(session, used);
        if now - used.written.load(Ordering::Relaxed) >= self.pause {
            self.soon.notify_one();
        }
    }

    fn queue(&self, session: SessionUid, used: &Arc<LastUse>) {
        if self.waiting.len() >= MAX_SESSIONS {
            used.queued.store(false, Ordering::Release);
            return;
        }
        match self.waiting.entry(session) {
            Entry::Vacant(place) => {
                place.insert(Arc::clone(used));
            }
            Entry::Occupied(other) => {
                other.get().used.fetch_max(used.used.load(Ordering::Relaxed), Ordering::Relaxed);
                used.queued.store(false, Ordering::Release);
            }
        }
    }

    /// The interval at which uses are written and idle sessions are ended.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// How long a session that was recorded to have an open stream is assumed to have it: twice the longest interval
    /// between two records.
    pub(super) fn open_stream_lifetime(&self) -> Duration {
        2 * (self.tick + Duration::from_micros(self.every.unsigned_abs()))
    }

    /// Whether any use waits to be written.
    pub(super) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes and returns the uses of these sessions, due or not.
    pub(super) fn take_of(&self, sessions: &[SessionUid]) -> Vec<(SessionUid, Arc<LastUse>)> {
        let taken = sessions.iter().filter_map(|session| self.waiting.remove(session));
        taken.inspect(|(_, used)| _ = used.queued.swap(false, Ordering::AcqRel)).collect()
    }

    /// Removes and returns the uses that are due.
    pub(super) fn take(&self, now: OffsetDateTime) -> Vec<(SessionUid, Arc<LastUse>)> {
        let before = micros(now) - self.every;
        self.take_where(|used| used.written.load(Ordering::Relaxed) <= before)
    }

    /// Removes and returns all uses.
    pub(super) fn take_all(&self) -> Vec<(SessionUid, Arc<LastUse>)> {
        self.take_where(|_| true)
    }

    fn take_where(&self, due: impl Fn(&LastUse) -> bool) -> Vec<(SessionUid, Arc<LastUse>)> {
        let sessions: Vec<_> =
            self.waiting.iter().filter(|entry| due(entry.value())).map(|entry| *entry.key()).collect();
        self.take_of(&sessions)
    }

    /// Queues uses again that could not be written.
    pub(super) fn put_back(&self, uses: &[(SessionUid, Arc<LastUse>)]) {
        for (session, used) in uses {
            if !used.queued.swap(true, Ordering::AcqRel) {
                self.queue(*session, used);
            }
        }
    }

    /// Returns when a use must be written at once.
    pub(super) async fn soon(&self) {
        self.soon.notified().await;
    }
}

fn micros(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

fn span(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const IDLE: Duration = Duration::from_mins(20);
    const SESSION: SessionUid = SessionUid(uuid::Uuid::from_u128(7));

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds)
    }

    /// Takes the due uses and returns their times, in seconds.
    fn taken(uses: &SessionUses, now: i64) -> Vec<i64> {
        let taken = uses.take(at(now));
        for (_, used) in &taken {
            used.written.store(used.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        taken.iter().map(|(_, used)| used.used.load(Ordering::Relaxed) / 1_000_000).collect()
    }

    #[test]
    fn last_use_of_each_session_is_written_once_a_minute() {
        let uses = SessionUses::new(IDLE);
        let last = uses.of(SESSION, at(0));
        uses.note(SESSION, &last, at(10));
        uses.note(SESSION, &last, at(20));
        assert_eq!(taken(&uses, 59), [0; 0], "the last write was less than a minute ago");
        uses.note(SESSION, &last, at(30));
        assert_eq!(taken(&uses, 60), [30]);
        assert_eq!(taken(&uses, 1_000), [0; 0], "nothing was used since");
        uses.note(SESSION, &last, at(1_001));
        assert_eq!(taken(&uses, 1_001), [1_001]);
    }

    #[test]
    fn reloaded_session_keeps_its_unwritten_use() {
        let uses = SessionUses::new(IDLE);
        uses.note(SESSION, &uses.of(SESSION, at(0)), at(50));
        let again = uses.of(SESSION, at(0));
        assert!(!again.is_idle(at(50 + 20 * 60 - 1), IDLE));
        assert!(again.is_idle(at(50 + 20 * 60), IDLE));
        uses.note(SESSION, &uses.unknown(at(55)), at(55));
        assert_eq!(
            taken(&uses, 60),
            [55],
            "a use of a session that is not in memory is merged with the cached ones"
        );
    }

    #[test]
    fn failed_write_is_queued_again() {
        let uses = SessionUses::new(IDLE);
        uses.note(SESSION, &uses.of(SESSION, at(0)), at(70));
        let lost = uses.take(at(70));
        uses.put_back(&lost);
        assert_eq!(taken(&uses, 70), [70]);
    }

    #[test]
    fn use_after_a_long_pause_is_written_at_once() {
        let uses = SessionUses::new(IDLE);
        let soon = || uses.soon().now_or_never().is_some();
        let last = uses.of(SESSION, at(0));
        uses.note(SESSION, &last, at(599));
        assert!(!soon());
        assert_eq!(taken(&uses, 599), [599]);
        uses.note(SESSION, &last, at(1_199));
        assert!(soon());
    }
}
