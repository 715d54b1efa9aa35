//! Detects that the database went back in time: a backup was restored under running replicas, or a standby was
//! promoted that lacked commits.
//!
//! Revisions in memory only rise. After such an event memory would hold lost content, and later writes with
//! lower revisions would be ignored as outdated. Each sweep therefore compares the identity of the server and
//! the gateway's epoch with those of the previous sweep, and the revisions that it reads with those in memory; on a new
//! connection, all revisions in memory with those of the database. That may take several sweeps, of which only the last one
//! succeeds.

use std::collections::HashMap;

use tokio::time::{Instant, timeout};

use super::service::Feed;
use super::sweeper::{Comparison, EpochRenewal, SweepState, TimelineBreak};
use crate::model::scope::{Revision, Scope};
use crate::model::system::FailPoint;
use crate::store::StoreError;
use crate::store::changes::{Sweep, SweepConnection};

/// Number of heads read per query: few enough for a small part of the time of a sweep, from a disk too.
const BATCH: usize = 1_000;
/// The part of the time of a sweep that an attempt to renew the epoch may take besides.
const RENEWAL_PART: u32 = 4;

impl Feed {
    /// Compares a sweep with the previous timeline and with memory. `reconnected` is true on a new connection, which may reach
    /// another server process. After `until`, what is left of memory is left to the next sweep.
    pub(super) async fn compare(
        &self,
        state: &mut SweepState,
        sweep: &Sweep,
        connection: &mut SweepConnection,
        (reconnected, until): (bool, Instant),
    ) -> Result<Comparison, StoreError> {
        let Some(known) = &state.timeline else { return Ok(Comparison::Continues) };
        if known.server != sweep.server {
            return Ok(Comparison::Breaks(TimelineBreak::Server));
        }
        if known.epoch != sweep.epoch {
            return Ok(Comparison::Breaks(TimelineBreak::Epoch));
        }
        // A server that lost transactions assigns their ids again.
        let lost_ids = sweep.horizon.next_xid() < known.next_xid && state.uncompared.is_empty();
        if reconnected || lost_ids {
            state.uncompared = self.revisions_in_memory().into_iter().collect();
        }
        let above =
            sweep.heads.iter().filter_map(|(scope, head)| self.revision_in_memory_above(*scope, *head));
        for suspects in above.collect::<Vec<_>>().chunks(BATCH) {
            if let Some(lost) = self.find_lost_revision(suspects, connection).await? {
                return Ok(Comparison::Breaks(lost));
            }
        }
        while !state.uncompared.is_empty() {
            // If this fails or is cancelled, the connection is dropped, and on the next one memory is compared from the start.
            let batch = state.uncompared.split_off(state.uncompared.len().saturating_sub(BATCH));
            if let Some(lost) = self.find_lost_revision(&batch, connection).await? {
                return Ok(Comparison::Breaks(lost));
            }
            if Instant::now() >= until && !state.uncompared.is_empty() {
                let left = state.uncompared.len();
                tracing::info!(left, "comparing memory with the database takes further sweeps");
                return Ok(Comparison::Unfinished);
            }
        }
        Ok(Comparison::Continues)
    }

    /// Finds a scope whose head is below the revision in memory. Heads are read again, since memory may have
    /// advanced after the sweep read them.
    async fn find_lost_revision(
        &self,
        suspects: &[(Scope, Revision)],
        connection: &mut SweepConnection,
    ) -> Result<Option<TimelineBreak>, StoreError> {
        self.system.pause(FailPoint::Comparison).await;
        let scopes: Vec<_> = suspects.iter().map(|(scope, _)| *scope).collect();
        let heads: HashMap<_, _> = connection.heads(&scopes).await?.into_iter().collect();
        let is_lost = |scope, held| heads.get(&scope).is_some_and(|head| *head < held);
        let lost = suspects.iter().find(|(scope, held)| is_lost(*scope, *held));
        Ok(lost.map(|(scope, _)| TimelineBreak::Revision(*scope)))
    }

    /// The revision of a scope in memory, if it is above the given one.
    fn revision_in_memory_above(&self, scope: Scope, found: Revision) -> Option<(Scope, Revision)> {
        let held = self.follower.get().and_then(|follower| follower.applied(scope));
        let seen = self.hub.seen(scope);
        held.max(seen).filter(|held| *held > found).map(|held| (scope, held))
    }

    /// The revisions of all scopes in memory.
    fn revisions_in_memory(&self) -> HashMap<Scope, Revision> {
        let held = self.follower.get().map(|follower| follower.held()).unwrap_or_default();
        let mut all: HashMap<_, _> = held.into_iter().collect();
        for (scope, seen) in self.hub.all_seen() {
            let known = all.entry(scope).or_default();
            *known = (*known).max(seen);
        }
        all
    }

    /// Starts a new timeline: discards all state of the old one.
    pub(super) fn start_timeline(&self, cause: TimelineBreak, sweep: &Sweep, state: &mut SweepState) {
        tracing::warn!(
            reason = cause.reason(),
            server = sweep.server,
            "database timeline changed; dropping memory and notifying every stream"
        );
        // Other replicas may have nothing in memory that reveals the loss. Nor will this one, once memory is cleared.
        if let TimelineBreak::Revision(scope) = cause {
            tracing::warn!(scope = %scope.0, "database lacks a revision held in memory; renewing the epoch");
            state.renewal = Some(EpochRenewal { known: sweep.epoch, failed: false });
        }
        state.uncompared.clear();
        // Before memory is cleared, so that nothing is loaded into it from connections to another server.
        self.store.retire_connections();
        self.store.forget_prefetched();
        self.pending.drop_revisions();
        self.replicas.forget_revisions();
        if let Some(follower) = self.follower.get() {
            follower.forget_all();
        }
        self.hub.restart();
        // The notification connections are reopened, since they may lead to another server.
        self.next_timeline();
    }

    /// Renews the epoch if that is due, after a sweep that has succeeded whether this does or not. The next sweep repeats what
    /// fails: until the epoch is another one, a stream may resume on another replica across the loss.
    pub(super) async fn renew_epoch(&self, state: &mut SweepState) {
        let Some(EpochRenewal { known, failed }) = state.renewal else { return };
        if state.timeline.as_ref().is_some_and(|timeline| timeline.epoch != known) {
            // By another replica, or by an attempt that was not answered.
            state.renewal = None;
            return;
        }
        let Some(mut connection) = state.connection.take() else { return };
        let renewing = timeout(self.options.timeout / RENEWAL_PART, connection.renew_epoch(known)).await;
        match renewing {
            Ok(Ok(())) => (state.renewal, state.connection) = (None, Some(connection)),
            Ok(Err(error)) => {
                state.connection = Some(connection);
                log_failed_renewal(&error, failed);
                state.renewal = Some(EpochRenewal { known, failed: true });
            }
            // The connection is dropped in the middle of a statement.
            Err(_) => {
                log_failed_renewal(&StoreError::Timeout, failed);
                state.renewal = Some(EpochRenewal { known, failed: true });
            }
        }
    }
}

fn log_failed_renewal(error: &StoreError, failed_before: bool) {
    if failed_before {
        tracing::debug!(%error, "renewing the epoch failed");
    } else {
        tracing::warn!(%error, "renewing the epoch failed; retrying with each sweep");
    }
}
