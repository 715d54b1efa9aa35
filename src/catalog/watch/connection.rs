//! The watch of one connection, by the replica that holds its lease: its content is polled at intervals, and when the
//! source says that it may have changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use content_source::{ChangeHint, FetchError, Path, Segment};
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::content::{MIN_REVISION_INTERVAL, NextPoll, WatchedContent};
use super::files::ConnectionFiles;
use super::hints::Hints;
use super::poll::{PollResult, Verdict};
use super::record::StoredBytes;
use super::schedule::{ContentState, Lane, MAX_POLLS, Schedule};
use crate::cache::FairSemaphore;
use crate::catalog::Catalog;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::scope::Revision;
use crate::sources::WatchEvent;
use crate::store::leases::HeldLease;
use crate::store::watching::WatchedSubject;

/// The maximum number of watched contents of a connection; further ones are watched once others are not.
const MAX_WATCHED: i64 = 50_000;
/// How long a poll waits for a permit among those of all connections, which are given in turn between tenants.
const PERMIT_TIMEOUT: Duration = Duration::from_mins(1);
/// How often it is compared whether the connection changed.
const COMPARE_INTERVAL: Duration = Duration::from_secs(2);
/// How often stored content is removed that is too old.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(10);
/// After what time subjects that could not be read are read again.
const READ_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A poll that ended.
struct EndedPoll {
    subject: WatchedSubject,
    result: Result<Option<PollResult>, Fault>,
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
    watched: HashMap<WatchedSubject, WatchedContent>,
    by_path: BTreeMap<Vec<Segment>, HashSet<WatchedSubject>>,
    schedule: Schedule,
    stored: Arc<StoredBytes>,
    files: ConnectionFiles,
    /// When everything was polled last since what changed was not known.
    swept: Option<Instant>,
    /// Whether everything is polled again once that is a while ago.
    is_sweep_due: bool,
    /// The timeline of the database, and the revision of the connection in it, as they were compared last.
    compared: Option<(u64, Revision)>,
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
            is_sweep_due: false,
            compared: None,
        }
    }

    /// Watches until the lease is given up, which ends `held`.
    pub(super) async fn run(mut self, mut held: watch::Receiver<HeldLease>) {
        let mut hints = Hints::new(self.held.lease.connection);
        // Their lanes, by the ids of their tasks.
        let (mut polls, mut lanes) = (JoinSet::new(), HashMap::new());
        let mut reads_at = Some(Instant::now());
        let mut expiries = interval(EXPIRE_INTERVAL);
        expiries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut compares = interval(COMPARE_INTERVAL);
        compares.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What an earlier holder has stored.
        self.expire().await;
        loop {
            if reads_at.is_some_and(|at| at <= Instant::now()) {
                self.held = *held.borrow_and_update();
                reads_at = match self.read().await {
                    Ok(()) => None,
                    Err(fault) => {
                        tracing::debug!(%fault, "subjects that are watched not read");
                        Some(Instant::now() + READ_RETRY_DELAY)
                    }
                };
            }
            let sweeps_at = self.sweep();
            let next = if polls.len() < MAX_POLLS { self.schedule.next() } else { None };
            let wakes = next.into_iter().chain(reads_at).chain(sweeps_at).min();
            tokio::select! {
                changed = held.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    reads_at = Some(Instant::now());
                }
                Some(ended) = polls.join_next_with_id() => {
                    let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                    if let Some(lane) = lanes.remove(&id) {
                        self.schedule.ended(lane);
                    }
                    if let Ok((_, ended)) = ended {
                        self.ended(ended, &mut hints);
                    }
                }
                _ = expiries.tick(), if !self.stored.is_empty() => self.expire().await,
                _ = compares.tick() => if self.is_changed().await {
                    hints = Hints::new(self.held.lease.connection);
                    self.is_sweep_due = true;
                },
                hint = hints.next(&self.catalog) => self.hinted(&hint),
                changed = self.files.changed() => {
                    let now = Instant::now();
                    for subject in changed {
                        self.poll_again(&subject, now, true);
                    }
                }
                () = sleep_until(wakes.unwrap_or_else(Instant::now)), if wakes.is_some() => {}
            }
            while polls.len() < MAX_POLLS
                && let Some((lane, poll)) = self.begin()
            {
                lanes.insert(polls.spawn(poll).id(), lane);
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
            if let Some(WatchedContent { path: Some(path), .. }) = self.watched.remove(subject) {
                self.unplace(subject, &path);
            }
        }
        let now = Instant::now();
        for (subject, recorded) in subjects {
            if !self.watched.contains_key(&subject) {
                let watched = WatchedContent::new(recorded, now);
                self.schedule.set(&subject, watched.content_state(), now);
                self.watched.insert(subject, watched);
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

    /// Begins the next poll that is due, of a lane.
    fn begin(&mut self) -> Option<(Lane, impl Future<Output = EndedPoll> + Send + use<>)> {
        let (lane, subject) = self.schedule.take_due(Instant::now())?;
        let Some(watched) = self.watched.get_mut(&subject) else {
            self.schedule.ended(lane);
            return None;
        };
        (watched.is_polled, watched.is_stale) = (true, false);
        let (catalog, permits) = (Arc::clone(&self.catalog), Arc::clone(&self.permits));
        let (lease, known, stored) = (self.held.lease, watched.known.clone(), Arc::clone(&self.stored));
        let tenant = subject.0.tenant;
        let poll = async move {
            let permit = permits.acquire(tenant, PERMIT_TIMEOUT).await;
            let result = match permit {
                Some(_) => {
                    let polling =
                        AssertUnwindSafe(catalog.poll(&lease, &subject, &known, &stored)).catch_unwind();
                    polling.await.unwrap_or_else(|_| Err(Fault::Internal("a poll panicked".to_owned())))
                }
                None => Err(Fault::SourceFailed(FetchError::Busy)),
            };
            drop(permit);
            EndedPoll { subject, result, jitter: catalog.jitter() }
        };
        Some((lane, poll))
    }

    /// Schedules the next poll of content whose poll ended, and takes over what was found.
    fn ended(&mut self, EndedPoll { subject, result, jitter }: EndedPoll, hints: &mut Hints) {
        let Some(watched) = self.watched.get_mut(&subject) else { return };
        self.catalog.fetcher.count(WatchEvent::Polled);
        if let Ok(Some(found)) = &result {
            hints.include(found.source, found.path.as_ref(), Payer::Tenant(subject.0.tenant));
        }
        let now = Instant::now();
        let delay = match watched.polled(&result, hints.are_reliable(), now) {
            _ if watched.is_stale => Duration::ZERO,
            NextPoll::After(delay) => delay.mul_f64(1.0 - jitter),
            NextPoll::WithRound(every) => {
                self.catalog.fetcher.round(self.held.lease.connection, every).left()
            }
        };
        let content_state = match &result {
            Ok(Some(_)) => ContentState::Known,
            _ => watched.content_state(),
        };
        self.schedule.set(&subject, content_state, (now + delay).max(watched.not_before));
        match result {
            Ok(Some(found)) => self.apply(subject, found),
            Ok(None) => self.files.remove(&subject),
            Err(Fault::SourceFailed(FetchError::Busy)) => {}
            Err(fault) => {
                tracing::debug!(%fault, "watched content not fetched");
                // Until it is, scans find what changes.
                self.files.remove(&subject);
            }
        }
    }

    /// Takes over what a poll found.
    fn apply(&mut self, subject: WatchedSubject, found: PollResult) {
        if found.verdict == Verdict::Changed {
            self.catalog.fetcher.count(WatchEvent::Changed);
        }
        if found.is_of_mount && found.known.contents.is_some() {
            self.files.insert(&subject);
        } else {
            self.files.remove(&subject);
        }
        let Some(watched) = self.watched.get_mut(&subject) else { return };
        watched.known = found.known;
        if watched.path != found.path {
            if let Some(before) = std::mem::replace(&mut watched.path, found.path.clone()) {
                self.unplace(&subject, &before);
            }
            if let Some(path) = found.path {
                self.by_path.entry(path.segments).or_default().insert(subject);
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

    /// Polls what a hint concerns.
    fn hinted(&mut self, hint: &ChangeHint) {
        self.catalog.fetcher.count(WatchEvent::Hinted);
        let concerned = match hint {
            ChangeHint::Path(path) => self.concerned(path),
            ChangeHint::Everything => Vec::new(),
        };
        // What is not watched itself may be what a symbolic link leads to.
        self.is_sweep_due |= concerned.is_empty();
        let now = Instant::now();
        for subject in concerned {
            self.poll_again(&subject, now, true);
        }
    }

    /// Polls everything if that is due, at most once in a while. Returns when it may if it is not over.
    fn sweep(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let begins = self.swept.map_or(now, |at| at + MIN_REVISION_INTERVAL);
        if !self.is_sweep_due || begins > now {
            return self.is_sweep_due.then_some(begins);
        }
        (self.is_sweep_due, self.swept) = (false, Some(now));
        for subject in self.watched.keys().cloned().collect::<Vec<_>>() {
            self.poll_again(&subject, now, false);
        }
        None
    }

    /// Whether the connection changed since it was compared last: what it notifies, and what is known of its content, is of
    /// the connection before.
    async fn is_changed(&mut self) -> bool {
        let Some((agent, _)) = self.watched.keys().next() else { return false };
        let (connections, uid) = (self.catalog.fetcher.connections(), self.held.lease.connection);
        // A change drops it from memory.
        let connection = match connections.in_memory(uid) {
            Some(connection) => Some(connection),
            None => connections.get(Payer::Tenant(agent.tenant), uid).await.ok().flatten(),
        };
        let Some(connection) = connection else { return false };
        let now = (self.catalog.scopes.timeline(), connection.revision);
        self.compared.replace(now).is_some_and(|before| before != now)
    }

    fn poll_again(&mut self, subject: &WatchedSubject, now: Instant, is_urgent: bool) {
        if let Some(watched) = self.watched.get_mut(subject) {
            (watched.is_stale, watched.is_urgent) = (true, watched.is_urgent || is_urgent);
            if !watched.is_polled {
                self.schedule.advance(subject, watched.content_state(), watched.not_before.max(now));
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
