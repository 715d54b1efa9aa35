//! The watch of one connection, by the replica that holds its lease: its content is polled, or looked at when the source
//! says that it may have changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use content_source::{ChangeHint, FetchError, Kind, Path, Segment};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::files::ConnectionFiles;
use super::hints::Hints;
use super::poll::{Known, Looked, Verdict};
use super::record::StoredBytes;
use super::schedule::Schedule;
use crate::cache::FairSemaphore;
use crate::catalog::Catalog;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::sources::WatchEvent;
use crate::store::leases::HeldLease;
use crate::store::watching::WatchedSubject;

/// The maximum number of watched contents of a connection; further ones are watched once others are not.
const MAX_WATCHED: i64 = 50_000;
/// The maximum number of concurrent fetches of a connection.
const MAX_POLLS: usize = 8;
/// How often content is looked at whose changes are reported.
const SCAN: Duration = Duration::from_mins(1);
/// How often files are looked at whose changes are not reported: what is unchanged is not read.
const OF_FILES: Duration = Duration::from_millis(500);
/// The shortest time between two revisions of the same content.
const BETWEEN_REVISIONS: Duration = Duration::from_secs(1);
/// The longest time until content is looked at again that failed, unless it is polled less often.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// After what time content is looked at again that the source says has changed, while the rate of polls is used up.
const SOON: Duration = Duration::from_millis(100);
/// How long a look waits for a place among those of all connections, in turn between tenants.
const WAITS_FOR_PERMIT: Duration = Duration::from_mins(1);
/// How often stored content is removed that is too old.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);
/// After what time subjects that could not be read are read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Watched content.
#[derive(Debug)]
struct Watched {
    known: Known,
    /// No look before: a revision was just made.
    not_before: Instant,
    path: Option<Path>,
    every: Duration,
    failures: u32,
    /// How many times in a row the rate of polls was used up.
    refusals: u32,
    is_polled: bool,
    /// It may have changed since the look in progress began.
    again: bool,
    /// The source says that it changed.
    is_urgent: bool,
}

/// How a look ended.
struct Ended {
    subject: WatchedSubject,
    looked: Result<Option<Looked>, Fault>,
    jitter: f64,
}

/// The watch of a connection.
pub(super) struct ConnectionWatch {
    catalog: Arc<Catalog>,
    held: HeldLease,
    /// Shared by the watches of all connections.
    permits: Arc<FairSemaphore<TenantId>>,
    /// Set while nothing is watched.
    is_idle: Arc<AtomicBool>,
    watched: HashMap<WatchedSubject, Watched>,
    by_path: BTreeMap<Vec<Segment>, HashSet<WatchedSubject>>,
    schedule: Schedule,
    stored: Arc<StoredBytes>,
    files: ConnectionFiles,
    /// When everything was looked at last since what changed was not known.
    swept: Option<Instant>,
}

impl ConnectionWatch {
    pub(super) fn new(
        catalog: Arc<Catalog>,
        held: HeldLease,
        permits: Arc<FairSemaphore<TenantId>>,
        is_idle: Arc<AtomicBool>,
    ) -> Self {
        let stored = Arc::new(StoredBytes::new(catalog.limits.watched_bytes));
        let files = ConnectionFiles::new(Arc::clone(&catalog.watched_files));
        Self {
            catalog,
            held,
            permits,
            is_idle,
            watched: HashMap::new(),
            by_path: BTreeMap::new(),
            schedule: Schedule::default(),
            stored,
            files,
            swept: None,
        }
    }

    /// Watches until the lease is given up, which ends `held`.
    pub(super) async fn run(mut self, mut held: watch::Receiver<HeldLease>) {
        let mut hints = Hints::new(self.held.lease.connection);
        let mut polls = JoinSet::new();
        let mut reads_at = Some(Instant::now());
        let mut expiries = interval(EXPIRE_EVERY);
        expiries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What an earlier holder has stored.
        self.expire().await;
        loop {
            if reads_at.is_some_and(|at| at <= Instant::now()) {
                self.held = *held.borrow_and_update();
                reads_at = match self.read().await {
                    Ok(()) => None,
                    Err(fault) => {
                        tracing::debug!(%fault, "subjects that are watched not read");
                        Some(Instant::now() + READ_AGAIN)
                    }
                };
            }
            let next = if polls.len() < MAX_POLLS { self.schedule.next() } else { None };
            let wakes = next.into_iter().chain(reads_at).min();
            tokio::select! {
                changed = held.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    reads_at = Some(Instant::now());
                }
                Some(ended) = polls.join_next() => {
                    if let Ok(ended) = ended {
                        self.ended(ended, &mut hints);
                    }
                }
                _ = expiries.tick(), if !self.stored.is_empty() => self.expire().await,
                hint = hints.next(&self.catalog) => self.hinted(&hint),
                () = sleep_until(wakes.unwrap_or_else(Instant::now)), if wakes.is_some() => {}
            }
            while polls.len() < MAX_POLLS
                && let Some(poll) = self.begin()
            {
                polls.spawn(poll);
            }
        }
    }

    /// Reads what is watched.
    async fn read(&mut self) -> Result<(), Fault> {
        let subjects = self.catalog.store.watching(self.held.lease.connection, MAX_WATCHED).await?;
        let live: HashSet<_> = subjects.iter().map(|(subject, _)| subject.clone()).collect();
        let gone: Vec<_> = self.watched.keys().filter(|subject| !live.contains(*subject)).cloned().collect();
        for subject in &gone {
            self.schedule.remove(subject);
            self.files.remove(subject);
            if let Some(Watched { path: Some(path), .. }) = self.watched.remove(subject) {
                self.unplace(subject, &path);
            }
        }
        let now = Instant::now();
        for (subject, recorded) in subjects {
            if !self.watched.contains_key(&subject) {
                self.schedule.set(&subject, now);
                let known = Known { recorded, contents: None };
                let new = Watched {
                    known,
                    not_before: now,
                    path: None,
                    every: BETWEEN_REVISIONS,
                    failures: 0,
                    refusals: 0,
                    is_polled: false,
                    again: false,
                    is_urgent: false,
                };
                self.watched.insert(subject, new);
            }
        }
        if !gone.is_empty() {
            self.expire().await;
        }
        self.is_idle.store(self.watched.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// Removes what is stored and too old, or watched no more.
    async fn expire(&self) {
        match self.catalog.store.expire_found_contents(&self.held.lease).await {
            Ok(used) => self.stored.set(used.unwrap_or(0)),
            Err(error) => tracing::debug!(%error, "content that was found not removed"),
        }
    }

    /// Begins the next look that is due.
    fn begin(&mut self) -> Option<impl Future<Output = Ended> + Send + use<>> {
        let subject = self.schedule.take_due(Instant::now())?;
        let watched = self.watched.get_mut(&subject)?;
        (watched.is_polled, watched.again) = (true, false);
        let (catalog, permits) = (Arc::clone(&self.catalog), Arc::clone(&self.permits));
        let (lease, known, stored) = (self.held.lease, watched.known.clone(), Arc::clone(&self.stored));
        Some(async move {
            let permit = permits.acquire(subject.0.tenant, WAITS_FOR_PERMIT).await;
            let looked = match permit {
                Some(_) => catalog.look(&lease, &subject, &known, &stored).await,
                None => Err(Fault::SourceFailed(FetchError::Busy)),
            };
            drop(permit);
            // With jitter, so that what begins together does not stay together.
            let mut random = [0];
            let jitter = catalog.sources.random.fill(&mut random).map_or(0, |()| random[0]);
            Ended { subject, looked, jitter: f64::from(jitter) / 2_560.0 }
        })
    }

    fn ended(&mut self, Ended { subject, looked, jitter }: Ended, hints: &mut Hints) {
        let now = Instant::now();
        let Some(watched) = self.watched.get_mut(&subject) else { return };
        watched.is_polled = false;
        self.catalog.fetcher.count(WatchEvent::Polled);
        let (mut moved, mut is_in_rounds) = (None, false);
        let after = match looked {
            Ok(Some(looked)) => {
                (watched.failures, watched.refusals, watched.is_urgent) = (0, 0, false);
                let (kind, _) = looked.source;
                is_in_rounds = kind == Kind::Git && looked.verdict != Verdict::Open;
                if looked.is_of_mount && looked.known.contents.is_some() {
                    self.files.insert(&subject);
                } else {
                    self.files.remove(&subject);
                }
                watched.known = looked.known;
                watched.every = looked.every;
                if looked.path != watched.path {
                    moved = Some(std::mem::replace(&mut watched.path, looked.path.clone()));
                }
                hints.include(looked.source, looked.path.as_ref(), Payer::Tenant(subject.0.tenant));
                if looked.verdict == Verdict::Changed {
                    self.catalog.fetcher.count(WatchEvent::Changed);
                    watched.not_before = now + BETWEEN_REVISIONS;
                }
                match (looked.verdict, kind) {
                    (Verdict::Open, _) => BETWEEN_REVISIONS,
                    (_, Kind::File) if hints.are_reliable() => SCAN,
                    (_, Kind::File) => OF_FILES,
                    (_, Kind::Git) => {
                        self.catalog.fetcher.round(self.held.lease.connection, looked.every).left()
                    }
                    _ if hints.are_reliable() => looked.every.max(SCAN),
                    _ => looked.every,
                }
            }
            Ok(None) => {
                self.files.remove(&subject);
                watched.every.max(BETWEEN_REVISIONS)
            }
            // The rate of polls is used up: that is no failure.
            Err(Fault::SourceFailed(FetchError::Busy)) if watched.is_urgent => SOON,
            // Later each time: what is refused takes time, too, if there is much of it.
            Err(Fault::SourceFailed(FetchError::Busy)) => {
                watched.refusals = watched.refusals.saturating_add(1);
                backed_off(BETWEEN_REVISIONS, watched.refusals).min(watched.every.max(BETWEEN_REVISIONS))
            }
            Err(fault) => {
                tracing::debug!(%fault, "watched content not fetched");
                // Until it is, scans find what changes.
                self.files.remove(&subject);
                watched.failures = watched.failures.saturating_add(1);
                backed_off(watched.every, watched.failures)
            }
        };
        let after = if watched.again {
            Duration::ZERO
        } else if is_in_rounds {
            // What begins with a round of polls shares what it asks.
            after
        } else {
            after.mul_f64(1.0 - jitter)
        };
        let at = (now + after).max(watched.not_before);
        self.schedule.set(&subject, at);
        if let Some(before) = moved {
            if let Some(before) = before {
                self.unplace(&subject, &before);
            }
            if let Some(path) = self.watched.get(&subject).and_then(|watched| watched.path.as_ref()) {
                self.by_path.entry(path.segments.clone()).or_default().insert(subject);
            }
        }
    }

    fn unplace(&mut self, subject: &WatchedSubject, path: &Path) {
        if let Some(there) = self.by_path.get_mut(&path.segments) {
            there.remove(subject);
            if there.is_empty() {
                self.by_path.remove(&path.segments);
            }
        }
    }

    /// Looks at what a hint concerns.
    fn hinted(&mut self, hint: &ChangeHint) {
        self.catalog.fetcher.count(WatchEvent::Hinted);
        let concerned = match hint {
            ChangeHint::Path(path) => self.concerned(path),
            ChangeHint::Everything => Vec::new(),
        };
        let now = Instant::now();
        if !concerned.is_empty() {
            for subject in concerned {
                self.look_again(&subject, now, true);
            }
        } else if *hint == ChangeHint::Everything
            || self.swept.is_none_or(|at| now.duration_since(at) >= BETWEEN_REVISIONS)
        {
            // What is not watched itself may be what a symbolic link leads to.
            self.swept = Some(now);
            for subject in self.watched.keys().cloned().collect::<Vec<_>>() {
                self.look_again(&subject, now, false);
            }
        }
    }

    fn look_again(&mut self, subject: &WatchedSubject, now: Instant, is_urgent: bool) {
        if let Some(watched) = self.watched.get_mut(subject) {
            (watched.again, watched.is_urgent) = (true, watched.is_urgent || is_urgent);
            if !watched.is_polled {
                self.schedule.advance(subject, watched.not_before.max(now));
            }
        }
    }

    /// What is at a path, below it, or the directory that it is directly in.
    fn concerned(&self, path: &Path) -> Vec<WatchedSubject> {
        let below = self.by_path.range(path.segments.clone()..);
        let below = below.take_while(|(at, _)| at.starts_with(&path.segments));
        let mut concerned: Vec<_> = below.flat_map(|(_, subjects)| subjects.iter().cloned()).collect();
        if let Some((_, parent)) = path.segments.split_last() {
            let there = self.by_path.get(parent).into_iter().flatten();
            let is_directory = |subject: &&WatchedSubject| {
                let path = self.watched.get(*subject).and_then(|watched| watched.path.as_ref());
                path.is_some_and(|path| path.is_directory)
            };
            concerned.extend(there.filter(is_directory).cloned());
        }
        concerned
    }
}

/// The time until the next look after so many failures in a row.
fn backed_off(every: Duration, failures: u32) -> Duration {
    let longest = every.max(LONGEST_WAIT);
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    every.max(BETWEEN_REVISIONS).saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::backed_off;

    #[test]
    fn failures_in_a_row_are_retried_ever_later() {
        let after = |every, failures| backed_off(Duration::from_secs(every), failures).as_secs();
        assert_eq!([1, 2, 3, 7, 40].map(|failures| after(1, failures)), [1, 2, 4, 60, 60]);
        assert_eq!((after(0, 1), after(30, 1), after(30, 3), after(3_600, 5)), (1, 30, 60, 3_600));
    }
}
