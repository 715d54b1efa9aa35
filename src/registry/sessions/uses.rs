//! When sessions were last used: known at once in memory, written down now and then, all together.
//!
//! What another replica goes by is at most half of the time old that an idle session lasts, and only where that does not
//! matter: a use after a longer pause is written at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::model::ids::SessionUid;
use crate::registry::Registry;
use crate::store::sessions::SessionUse;

/// Sessions whose uses wait to be written; past it a use goes unnoted.
const MOST: usize = 100_000;
/// Uses of one statement.
const BATCH: usize = 1_000;
/// The longest between two writes of one session's uses.
const EVERY: Duration = Duration::from_mins(1);
/// The longest between two looks for what is to be written.
const TICK: Duration = Duration::from_secs(20);

/// The last use of one session. Times in microseconds since 1970.
#[derive(Debug)]
pub(in crate::registry) struct Use {
    used: AtomicI64,
    /// The last use that is written down.
    written: AtomicI64,
    /// Whether it waits to be written.
    queued: AtomicBool,
}

impl Use {
    fn new(used: i64, written: i64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicI64::new(used),
            written: AtomicI64::new(written),
            queued: AtomicBool::new(false),
        })
    }

    /// Whether the session has not been used for so long.
    pub(super) fn is_idle(&self, now: OffsetDateTime, idle: Duration) -> bool {
        micros(now) - self.used.load(Ordering::Relaxed) >= span(idle)
    }
}

/// The uses that wait to be written.
#[derive(Debug)]
pub(in crate::registry) struct SessionUses {
    waiting: DashMap<SessionUid, Arc<Use>>,
    /// The least between two writes of one session's uses.
    every: i64,
    /// A use this long after the last written one is written at once.
    pause: i64,
    /// How often uses are written and idle sessions looked for.
    tick: Duration,
    soon: Notify,
}

impl SessionUses {
    pub(in crate::registry) fn new(idle: Duration) -> Self {
        Self {
            waiting: DashMap::new(),
            every: span(EVERY.min(idle / 4)),
            pause: span(idle / 2),
            tick: TICK.min(idle / 4),
            soon: Notify::new(),
        }
    }

    /// The last use of a session that was read: as it was written, or newer where that still waits.
    pub(super) fn of(&self, session: SessionUid, written: OffsetDateTime) -> Arc<Use> {
        let written = micros(written);
        match self.waiting.get(&session) {
            Some(waiting) => {
                waiting.used.fetch_max(written, Ordering::Relaxed);
                Arc::clone(&waiting)
            }
            None => Use::new(written, written),
        }
    }

    /// The last use of a session of which nothing is held: to be written with the next.
    pub(super) fn unknown(&self, now: OffsetDateTime) -> Arc<Use> {
        Use::new(micros(now), micros(now) - self.every)
    }

    /// Notes a use now.
    pub(super) fn note(&self, session: SessionUid, used: &Arc<Use>, now: OffsetDateTime) {
        let now = micros(now);
        used.used.fetch_max(now, Ordering::Relaxed);
        // Always exchanged: whoever writes it down exchanges too, and one of both sees the other.
        if used.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        self.queue(session, used);
        if now - used.written.load(Ordering::Relaxed) >= self.pause {
            self.soon.notify_one();
        }
    }

    fn queue(&self, session: SessionUid, used: &Arc<Use>) {
        if self.waiting.len() >= MOST {
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

    /// For how long a session that was noted to have an open stream is known to have it: twice the longest time between
    /// two notes.
    pub(super) fn lease(&self) -> Duration {
        2 * (self.tick + Duration::from_micros(self.every.unsigned_abs()))
    }

    /// Takes the uses of these sessions, be they due or not.
    fn take_of(&self, sessions: &[SessionUid]) -> Vec<(SessionUid, Arc<Use>)> {
        let taken = sessions.iter().filter_map(|session| self.waiting.remove(session));
        taken.inspect(|(_, used)| _ = used.queued.swap(false, Ordering::AcqRel)).collect()
    }

    /// Takes the uses that are to be written by now.
    fn take(&self, now: OffsetDateTime) -> Vec<(SessionUid, Arc<Use>)> {
        let before = micros(now) - self.every;
        self.take_where(|used| used.written.load(Ordering::Relaxed) <= before)
    }

    fn take_where(&self, due: impl Fn(&Use) -> bool) -> Vec<(SessionUid, Arc<Use>)> {
        let sessions: Vec<_> =
            self.waiting.iter().filter(|entry| due(entry.value())).map(|entry| *entry.key()).collect();
        self.take_of(&sessions)
    }

    fn put_back(&self, uses: &[(SessionUid, Arc<Use>)]) {
        for (session, used) in uses {
            if !used.queued.swap(true, Ordering::AcqRel) {
                self.queue(*session, used);
            }
        }
    }

    /// Returns when a use is to be written at once.
    pub(super) async fn soon(&self) {
        self.soon.notified().await;
    }
}

impl Registry {
    /// How often uses are written and idle sessions looked for.
    pub(super) fn session_tick(&self) -> Duration {
        self.session_uses.tick
    }

    /// Writes down when sessions were last used, of each once in a while.
    pub async fn note_session_uses(&self) {
        self.write_session_uses(self.session_uses.take(self.sources.clock.now())).await;
    }

    /// Writes down the uses that still wait, since nobody does it later.
    pub(super) async fn note_last_session_uses(&self) {
        self.write_session_uses(self.session_uses.take_where(|_| true)).await;
    }

    /// Writes down when these sessions were last used, as far as it is known here.
    pub(super) async fn note_uses_of(&self, sessions: &[SessionUid]) {
        self.write_session_uses(self.session_uses.take_of(sessions)).await;
    }

    async fn write_session_uses(&self, uses: Vec<(SessionUid, Arc<Use>)>) {
        for batch in uses.chunks(BATCH) {
            let times: Vec<_> = batch.iter().map(|(_, used)| used.used.load(Ordering::Relaxed)).collect();
            let row = |((session, _), micros): (&(SessionUid, _), &i64)| SessionUse {
                session: *session,
                at: moment(*micros),
                streams: self.open_streams.has(*session),
            };
            let rows: Vec<_> = batch.iter().zip(&times).map(row).collect();
            match self.store.record_session_uses(&rows).await {
                Ok(()) => {
                    for ((_, used), written) in batch.iter().zip(times) {
                        used.written.fetch_max(written, Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, sessions = batch.len(), "the last uses of some sessions are noted later");
                    self.session_uses.put_back(batch);
                }
            }
        }
    }
}

fn micros(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

fn moment(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
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

    /// What is to be written, in seconds.
    fn taken(uses: &SessionUses, now: i64) -> Vec<i64> {
        let taken = uses.take(at(now));
        for (_, used) in &taken {
            used.written.store(used.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        taken.iter().map(|(_, used)| used.used.load(Ordering::Relaxed) / 1_000_000).collect()
    }

    #[test]
    fn the_last_use_is_written_in_the_end_and_of_each_session_once_a_minute() {
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
    fn a_session_that_is_read_again_keeps_the_use_that_waits() {
        let uses = SessionUses::new(IDLE);
        uses.note(SESSION, &uses.of(SESSION, at(0)), at(50));
        let again = uses.of(SESSION, at(0));
        assert!(!again.is_idle(at(50 + 20 * 60 - 1), IDLE));
        assert!(again.is_idle(at(50 + 20 * 60), IDLE));
        uses.note(SESSION, &uses.unknown(at(55)), at(55));
        assert_eq!(
            taken(&uses, 60),
            [55],
            "a use of a session that is not held is noted with those that are"
        );
    }

    #[test]
    fn what_could_not_be_written_waits_again() {
        let uses = SessionUses::new(IDLE);
        uses.note(SESSION, &uses.of(SESSION, at(0)), at(70));
        let lost = uses.take(at(70));
        uses.put_back(&lost);
        assert_eq!(taken(&uses, 70), [70]);
    }

    #[test]
    fn only_a_use_after_a_long_pause_is_written_at_once() {
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
