//! The change feed: wakes are hints, rows are the truth.
//!
//! After a commit the writing replica sends a wake (`notifier`); every replica hears it (`listener`) and, whatever
//! was lost on the way, finds it in the rows within a second (`sweep`). The listener's connection is probed, so that
//! a replica knows when it no longer hears.

mod catch_up;
pub mod hub;
mod listener;
mod members;
mod notifier;
mod proof;
mod sweep;
mod timeline;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::model::feed::{BoxFuture, ChangeFeed, FeedHealth, Follower, Unconfirmed};
use crate::model::scope::{Revision, Scope};
use crate::model::sources::Sources;
use crate::store::Store;
use crate::store::wakes::ReplicaId;

use catch_up::CatchUp;
use hub::Hub;
use members::Members;
use notifier::Pending;
use proof::{Proof, heartbeat_lease};
use sweep::Sweeper;

/// The rhythm of the feed.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// How often the listener's connection is probed, and a heartbeat sent; a probe that takes as long has failed.
    pub probe: Duration,
    /// How often the rows are swept.
    pub sweep: Duration,
    /// The least time between wakes that are sent; meanwhile they are gathered.
    pub notify: Duration,
    /// How long connecting, or a sweep, may take.
    pub patience: Duration,
}

/// What the feed did so far, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedStats {
    /// Zero while heartbeats and sweeps are in time, otherwise the age of the last successful sweep.
    pub unproven: Duration,
    /// Sweeps that succeeded.
    pub sweeps: u64,
    /// Sweeps that failed.
    pub failed_sweeps: u64,
    /// Scopes that were behind and were caught up before anybody asked.
    pub catch_ups: u64,
    /// How often the database went back in time.
    pub timelines: u64,
    /// What following the database has added to the local clock.
    pub clock_offset: time::Duration,
}

/// The change feed of one replica.
pub struct Feed {
    store: Store,
    sources: Sources,
    options: FeedOptions,
    proof: Proof,
    sweeper: Sweeper,
    pending: Pending,
    catch_up: CatchUp,
    members: Members,
    hub: Hub,
    follower: OnceLock<Weak<dyn Follower>>,
    /// How often the database went back in time.
    timelines: AtomicU64,
}

impl Feed {
    /// Builds a feed that is not heard from yet. `instance` identifies the replica among the others.
    pub fn new(store: Store, sources: Sources, instance: Uuid, options: FeedOptions) -> Self {
        Self {
            proof: Proof::new(&options),
            members: Members::new(ReplicaId(instance), heartbeat_lease(&options)),
            hub: Hub::new(options.patience),
            store,
            sources,
            options,
            sweeper: Sweeper::default(),
            pending: Pending::default(),
            catch_up: CatchUp::default(),
            follower: OnceLock::new(),
            timelines: AtomicU64::new(0),
        }
    }

    /// Starts the feed's tasks, which run until `stop`. The follower is told of every change from here on; a second
    /// one is ignored.
    pub fn start(
        self: &Arc<Self>,
        follower: Weak<dyn Follower>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        if self.follower.set(follower).is_err() {
            return;
        }
        tasks.spawn(Arc::clone(self).listen(stop.clone()));
        tasks.spawn(Arc::clone(self).sweep_regularly(stop.clone()));
        tasks.spawn(Arc::clone(self).notify(stop.clone()));
        tasks.spawn(Arc::clone(self).catch_up(stop.clone()));
    }

    /// What it did so far.
    pub fn stats(&self) -> FeedStats {
        let (sweeps, failed_sweeps) = self.sweeper.counts();
        let (unproven, catch_ups) = (self.proof.unproven_for(), self.catch_up.begun());
        let (timelines, clock_offset) = (self.timeline(), self.sources.clock.offset());
        FeedStats { unproven, sweeps, failed_sweeps, catch_ups, timelines, clock_offset }
    }

    /// Hands on what was heard or found.
    fn deliver(&self, revisions: &[(Scope, Revision)]) {
        let Some(follower) = self.follower() else { return };
        for (scope, revision) in revisions {
            if follower.raise(*scope, *revision) {
                self.catch_up.add(*scope);
            }
            self.hub.raise(*scope, *revision);
        }
    }

    fn timeline(&self) -> u64 {
        self.timelines.load(Ordering::Acquire)
    }

    fn next_timeline(&self) {
        self.timelines.fetch_add(1, Ordering::AcqRel);
        self.pending.beat();
    }

    fn follower(&self) -> Option<Arc<dyn Follower>> {
        self.follower.get().and_then(Weak::upgrade)
    }

    /// Has every stream find out at once whether it may go on.
    pub fn suspect_streams(&self) {
        self.hub.suspect_all();
    }

    /// Ends what reads for streams.
    pub async fn end_streams(&self) {
        self.hub.end().await;
    }
}

impl ChangeFeed for Feed {
    fn unproven_for(&self) -> Duration {
        self.proof.unproven_for()
    }

    fn is_away(&self) -> bool {
        self.sweeper.is_failing()
    }

    fn health(&self) -> FeedHealth {
        FeedHealth {
            started: self.proof.has_started(),
            listening: self.proof.is_listening(),
            sweeping: !self.sweeper.is_failing() && self.proof.is_sweeping(),
            sweep_age: self.proof.sweep_age(),
            clock_skewed: self.sources.clock.is_skewed(),
        }
    }

    fn confirm(&self) -> BoxFuture<'_, Result<(), Unconfirmed>> {
        Box::pin(self.sweep_for_caller())
    }

    fn announce(&self, revisions: &[(Scope, Revision)]) {
        self.pending.add(revisions);
        for (scope, revision) in revisions {
            self.hub.raise(*scope, *revision);
        }
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("options", &self.options).finish_non_exhaustive()
    }
}
