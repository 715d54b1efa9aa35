//! Watches content from connections: what streams are subscribed to is polled, and a change is a revision of the agent, as
//! a change of registered content is.
//!
//! Each replica records what its streams are subscribed to. The one that holds the lease of a connection watches all of
//! that which comes from it. The digest of what was found last is recorded, and compared and set in the transaction that
//! makes the revision, which is committed only while the lease is held. So a change is one revision, whichever replica finds
//! it. Where labels let several definitions answer one URI, the content of each that a subscriber sees is watched.

mod connection;
mod content;
mod files;
mod hints;
mod interest;
mod poll;
mod record;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::connection::ConnectionWatch;
pub use self::files::WatchedFiles;
use self::interest::Interest;
use super::Catalog;
use crate::cache::FairSemaphore;
use crate::model::feed::Subscriptions;
use crate::model::ids::{ConnectionId, TenantId};
use crate::sources::{Claim, Leases};
use crate::store::leases::{ConnectionLease, HeldLease};

/// How often it is looked for new subscriptions, while an agent has streams.
const TICK: Duration = Duration::from_millis(250);
/// How often ended subscriptions are looked for.
const REFRESH: Duration = Duration::from_secs(5);
/// The maximum number of concurrent fetches, which are admitted in turn between tenants.
const MAX_POLLS: usize = 64;
/// The maximum number of those of a tenant: its sources that hang leave half to others.
const MAX_POLLS_OF_TENANT: usize = MAX_POLLS / 2;
/// The maximum number of fetches that wait for another to end.
const MAX_WAITING: usize = 4_096;
/// For how long it is remembered what was found.
const FOUND_FOR: time::Duration = time::Duration::days(30);
/// How often what was found long ago is forgotten.
const FORGET_EVERY: Duration = Duration::from_hours(1);
/// How long the database has to answer when the replica stops.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Watches content for the streams of all replicas.
pub struct Watcher {
    catalog: Arc<Catalog>,
    interest: Interest,
    leases: Arc<Leases>,
    claim: Claim,
    watches: BTreeMap<ConnectionId, Running>,
    permits: Arc<FairSemaphore<TenantId>>,
}

/// The watch of a connection whose lease this replica holds.
struct Running {
    lease: ConnectionLease,
    held: watch::Sender<HeldLease>,
    /// Whether nothing is watched of it.
    is_idle: Arc<AtomicBool>,
    /// Ends it.
    _stop: DropGuard,
}

impl Watcher {
    /// Watches nothing yet.
    pub fn new(catalog: Arc<Catalog>, subscriptions: Arc<dyn Subscriptions>, leases: Arc<Leases>) -> Self {
        let interest = Interest::new(Arc::clone(&catalog), subscriptions, leases.holder());
        let permits = FairSemaphore::with_share(MAX_POLLS, MAX_POLLS_OF_TENANT, MAX_WAITING);
        let claim = leases.claim();
        Self { catalog, interest, leases, claim, watches: BTreeMap::new(), permits }
    }

    /// Watches until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut held = self.leases.held();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut refreshed, mut forgotten) = (Instant::now(), None::<Instant>);
        let (mut has_failed, mut is_quiet) = (false, false);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                // An idle replica does not wake up for nothing.
                () = self.interest.first_stream(), if is_quiet => is_quiet = false,
                _ = ticks.tick(), if !is_quiet => {
                    let now = Instant::now();
                    let is_due = now.duration_since(refreshed) >= REFRESH;
                    if is_due {
                        refreshed = now;
                    }
                    self.refresh(is_due).await;
                    if std::mem::take(&mut has_failed) {
                        let held = held.borrow().clone();
                        self.follow(&held, &mut tasks);
                    }
                    if !self.watches.is_empty() && forgotten.is_none_or(|at| now.duration_since(at) >= FORGET_EVERY) {
                        forgotten = Some(now);
                        self.catalog.forget_found().await;
                    }
                    is_quiet = self.watches.is_empty() && self.interest.is_empty();
                }
                changed = held.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let held = held.borrow_and_update().clone();
                    self.follow(&held, &mut tasks);
                    is_quiet = false;
                }
                Some(ended) = tasks.join_next() => has_failed |= ended.is_err(),
            }
        }
        tasks.shutdown().await;
        if timeout(ENDS_WITHIN, self.interest.end()).await.is_err() {
            tracing::debug!("what was watched not forgotten; it expires");
        }
    }

    /// Records what is subscribed to, and claims the leases of its connections; one that is held is kept as long as any
    /// replica has a stream that is subscribed to something of it.
    async fn refresh(&mut self, all: bool) {
        self.interest.refresh(all).await;
        if self.interest.record(!self.watches.is_empty()).await {
            self.leases.look();
        }
        let busy = self.watches.iter().filter(|(_, running)| !running.is_idle.load(Ordering::Relaxed));
        let mut claimed = self.interest.connections();
        claimed.extend(busy.map(|(connection, _)| *connection));
        self.claim.set(claimed);
    }

    /// Begins and ends watches as leases are acquired and lost.
    fn follow(&mut self, held: &BTreeMap<ConnectionId, HeldLease>, tasks: &mut JoinSet<()>) {
        self.watches.retain(|connection, running| {
            // One whose task has panicked begins again.
            let runs = !running.held.is_closed();
            runs && held.get(connection).is_some_and(|held| held.lease == running.lease)
        });
        for (connection, held) in held {
            if let Some(running) = self.watches.get(connection) {
                running.held.send_if_modified(|before| std::mem::replace(before, *held) != *held);
                continue;
            }
            let (sender, receiver) = watch::channel(*held);
            let (stop, is_idle) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
            let (catalog, permits) = (Arc::clone(&self.catalog), Arc::clone(&self.permits));
            let watch = ConnectionWatch::new(catalog, *held, permits, Arc::clone(&is_idle));
            let stopped = stop.clone();
            tasks.spawn(async move {
                stopped.run_until_cancelled(watch.run(receiver)).await;
            });
            let running = Running { lease: held.lease, held: sender, is_idle, _stop: stop.drop_guard() };
            self.watches.insert(*connection, running);
        }
    }
}

impl Catalog {
    /// The part of a time that is left out at random, less than a tenth: what begins together does not stay together.
    pub(super) fn jitter(&self) -> f64 {
        let mut random = [0];
        let jitter = self.system.random.fill(&mut random).map_or(0, |()| random[0]);
        f64::from(jitter) / 2_560.0
    }

    async fn forget_found(&self) {
        let before: OffsetDateTime = self.system.clock.now() - FOUND_FOR;
        if let Err(error) = self.store.forget_found(before).await {
            tracing::debug!(%error, "what was found of watched content not pruned");
        }
    }
}
