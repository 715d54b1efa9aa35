//! The state of the change feed of one replica. Its tasks are in the files named after them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::follower::FeedFollower;
use super::health::{FeedHealth, FeedOptions, trust_period};
use super::hub::streams::Hub;
use super::pending::PendingMessages;
use super::replicas::Replicas;
use super::sweeper::Sweeper;
use crate::model::feed::{
    BoxFuture, ChangeFeed, FeedStatus, Follower, SubscriptionStamp, Subscriptions, TimelineId, Unconfirmed,
};
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::label::CallerLabels;
use crate::model::scope::{Revision, Scope};
use crate::model::system::System;
use crate::model::trace::WriteSpan;
use crate::store::Store;
use crate::store::notify::AckRequestId;
use crate::telemetry::histogram::DurationCounts;

/// How much longer a replica that does not answer is waited for than it trusts its memory: the difference between two
/// clocks over that time.
const CLOCK_PRECISION: Duration = Duration::from_millis(5);

/// Counters and state of the feed, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStats {
    /// Zero while probes are answered and sweeps succeed in time, otherwise the age of the last successful sweep.
    pub unproven: Duration,
    /// Number of successful sweeps.
    pub sweeps: u64,
    /// Number of failed sweeps.
    pub failed_sweeps: u64,
    /// Number of scopes that were refreshed in the background after they fell behind.
    pub catch_ups: u64,
    /// Number of times that the database was found restored to, or failed over to, an earlier state.
    pub timeline_changes: u64,
    /// Current correction of the local clock towards the database's clock.
    pub clock_offset: time::Duration,
    /// How long the oldest transaction of the database server has been in progress, in any of its databases.
    pub oldest_transaction: Duration,
    /// The time from a change until its events could be sent.
    pub event_lag: DurationCounts,
}

/// A scope whose revision was passed to the follower.
pub(super) struct Raised {
    scope: Scope,
    revision: Revision,
    /// Whether it is in memory and behind.
    is_behind: bool,
}

/// Changes that are read with the next probe, for streams or memory.
pub(super) struct Prefetch {
    pub(super) agent: AgentRef,
    pub(super) after: Revision,
    /// What streams learn of once the changes are read.
    pub(super) raised: Raised,
}

/// The change feed of one replica.
pub struct Feed {
    pub(super) store: Store,
    pub(super) system: System,
    pub(super) options: FeedOptions,
    pub(super) health: Arc<FeedHealth>,
    pub(super) sweeper: Sweeper,
    pub(super) pending: PendingMessages,
    pub(super) follower: FeedFollower,
    pub(super) replicas: Replicas,
    pub(super) hub: Arc<Hub>,
    /// Number of times that the database went back in time; identifies the current timeline.
    timeline_changes: AtomicU64,
}

impl Feed {
    /// Creates a feed that is unproven until it starts. `instance` identifies this replica among the others.
    pub fn new(store: Store, system: System, instance: Uuid, options: FeedOptions) -> Self {
        Self {
            health: Arc::new(FeedHealth::new(&options)),
            replicas: Replicas::new(instance, trust_period(&options) + CLOCK_PRECISION),
            hub: Arc::new(Hub::new(options.timeout, options.traces)),
            store,
            system,
            options,
            sweeper: Sweeper::default(),
            pending: PendingMessages::default(),
            follower: FeedFollower::default(),
            timeline_changes: AtomicU64::new(0),
        }
    }

    /// Starts the feed's tasks, which run until `stop` is cancelled. From then on the follower receives every
    /// change. A second call has no effect.
    pub fn start(
        self: &Arc<Self>,
        follower: Weak<dyn Follower>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        if !self.follower.set(follower) {
            return;
        }
        let (listening, sweeping) =
            (Arc::clone(self).listen(stop.clone()), Arc::clone(self).sweep_regularly(stop.clone()));
        // In one task: they wake up together, and two tasks would wake up two threads.
        tasks.spawn(async { tokio::join!(listening, sweeping) });
        tasks.spawn(Arc::clone(self).notify(stop.clone()));
        tasks.spawn(Arc::clone(self).catch_up(stop.clone()));
    }

    /// Whether the feed is proven, for those that ask for each request.
    pub fn health(&self) -> Arc<FeedHealth> {
        Arc::clone(&self.health)
    }

    /// Returns the feed's counters.
    pub fn stats(&self) -> FeedStats {
        let (sweeps, failed_sweeps) = self.sweeper.counts();
        let (unproven, catch_ups) = (self.health.unproven_for(), self.follower.catch_ups());
        let (timeline_changes, clock_offset) = (self.timeline(), self.system.clock.offset());
        let oldest_transaction = self.sweeper.open_transactions.oldest();
        FeedStats {
            unproven,
            sweeps,
            failed_sweeps,
            catch_ups,
            timeline_changes,
            clock_offset,
            oldest_transaction,
            event_lag: self.hub.lag.counts(),
        }
    }

    /// Passes revisions that were received or swept to the follower and to the hub.
    pub(super) fn deliver(&self, revisions: &[(Scope, Revision)]) {
        self.raise_streams(&self.raise_memory(revisions));
    }

    /// Passes revisions to the follower: memory answers nothing older from now on.
    pub(super) fn raise_memory(&self, revisions: &[(Scope, Revision)]) -> Vec<Raised> {
        let Some(follower) = self.follower.get() else { return Vec::new() };
        let raise = |&(scope, revision): &(Scope, Revision)| {
            let is_behind = follower.raise(scope, revision);
            Raised { scope, revision, is_behind }
        };
        revisions.iter().map(raise).collect()
    }

    /// Passes to the hub the revisions that memory was raised to.
    pub(super) fn raise_streams(&self, raised: &[Raised]) {
        for Raised { scope, revision, is_behind } in raised {
            // Streams read the changes and apply them to memory, or let it catch up if they cannot.
            let is_read = self.hub.raise(*scope, *revision);
            if *is_behind && !is_read {
                self.follower.add_behind(*scope);
            }
        }
    }

    /// Takes out of what was raised a scope whose changes can be read with the next probe.
    pub(super) fn take_prefetch(&self, raised: &mut Vec<Raised>) -> Option<Prefetch> {
        let follower = self.follower.get()?;
        let next_read = |(at, raised): (usize, &Raised)| Some((at, follower.next_read(raised.scope)?));
        let (at, (agent, after)) = raised.iter().enumerate().find_map(next_read)?;
        Some(Prefetch { agent, after, raised: raised.swap_remove(at) })
    }

    pub(super) fn timeline(&self) -> u64 {
        self.timeline_changes.load(Ordering::Acquire)
    }

    /// The timeline of the database that memory belongs to; `None` before the first sweep.
    pub fn timeline_id(&self) -> Option<TimelineId> {
        self.sweeper.timeline.read().clone()
    }

    pub(super) fn next_timeline(&self) {
        self.timeline_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Requests every replica to acknowledge that a scope is at `revision`.
    pub(super) fn request_ack(&self, scope: Scope, revision: Revision) -> AckRequestId {
        let request = self.pending.request_ack(scope, revision, self.replicas.new_request());
        self.replicas.record_own_request(scope, revision, request, Instant::now());
        request
    }

    /// How long an event waits for acknowledgements: a replica that receives no messages has swept after this time, or its
    /// feed is unproven.
    pub(super) fn longest_wait_for_acks(&self) -> Duration {
        self.options.sweep * 2
    }

    /// Requests that every stream checks at once whether it may continue.
    pub fn recheck_streams(&self) {
        self.hub.recheck_all();
    }

    /// Stops the tasks that read changes for streams.
    pub async fn end_streams(&self) {
        self.hub.end().await;
    }
}

impl Subscriptions for Feed {
    fn agents(&self) -> Vec<(AgentRef, SubscriptionStamp)> {
        self.hub.agents()
    }

    fn first_stream(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.hub.opened.notified())
    }

    fn uris(&self, agent: AgentRef) -> Vec<ResourceUri> {
        self.hub.uris(agent.uid)
    }

    fn callers(&self, agent: AgentRef) -> Vec<(ResourceUri, HashSet<CallerLabels>)> {
        self.hub.callers(agent.uid)
    }
}

impl ChangeFeed for Feed {
    fn unproven_for(&self) -> Duration {
        self.health.unproven_for()
    }

    fn is_unreachable(&self) -> bool {
        self.sweeper.is_failing()
    }

    fn status(&self) -> FeedStatus {
        FeedStatus {
            started: self.health.has_started(),
            listening: self.health.is_listening(),
            sweeping: !self.sweeper.is_failing() && self.health.is_sweeping(),
            sweep_age: self.health.sweep_age(),
            clock_skewed: self.system.clock.is_skewed(),
        }
    }

    fn confirm(self: Arc<Self>) -> BoxFuture<'static, Result<(), Unconfirmed>> {
        Box::pin(self.sweep_for_caller())
    }

    fn announce(&self, revisions: &[(Scope, Revision)], spans: &[WriteSpan]) {
        for span in spans {
            // Only where some replica has streams that send events.
            if self.replicas.is_followed(span.scope, Instant::now()) {
                self.pending.add_span(*span);
            }
            self.hub.record_write(*span);
        }
        for (scope, revision) in revisions {
            if self.replicas.is_followed(*scope, Instant::now()) {
                self.request_ack(*scope, *revision);
            } else {
                self.pending.add(*scope, *revision);
            }
            self.hub.raise(*scope, *revision);
        }
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("options", &self.options).finish_non_exhaustive()
    }
}
