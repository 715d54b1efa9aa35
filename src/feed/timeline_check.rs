//! Detects that the database went back in time: a backup was restored under running replicas, or a standby was
//! promoted that lacked commits.
//!
//! Revisions in memory only rise. After such an event memory would hold lost content, and later writes with
//! lower revisions would be ignored as outdated. Each sweep therefore compares the identity of the server and
//! the gateway's epoch with those of the previous sweep, and the revisions that it reads with those in memory.

use std::collections::HashMap;

use super::service::Feed;
use super::sweeper::{Timeline, TimelineBreak};
use crate::model::scope::{Revision, Scope};
use crate::store::StoreError;
use crate::store::changes::{Sweep, SweepConnection};

/// Number of heads read per query.
const BATCH: usize = 10_000;

impl Feed {
    /// Compares a sweep with the previous timeline. `reconnected` is true on a new connection.
    pub(super) async fn find_break(
        &self,
        known: Option<&Timeline>,
        sweep: &Sweep,
        connection: &mut SweepConnection,
        reconnected: bool,
    ) -> Result<Option<TimelineBreak>, StoreError> {
        let Some(known) = known else { return Ok(None) };
        if known.server != sweep.server {
            return Ok(Some(TimelineBreak::Server));
        }
        if known.epoch != sweep.epoch {
            return Ok(Some(TimelineBreak::Epoch));
        }
        // A new connection may reach another server process, and a server that lost transactions assigns their
        // ids again.
        let suspects = if reconnected || sweep.horizon.next_xid() < known.next_xid {
            self.revisions_in_memory()
        } else {
            sweep
                .heads
                .iter()
                .filter_map(|(scope, found)| self.revision_in_memory_above(*scope, *found))
                .collect()
        };
        let lost = self.find_lost_revision(&suspects, connection).await?;
        Ok(lost.map(TimelineBreak::Revision))
    }

    /// Finds a scope whose head is below the revision in memory. Heads are read again, since memory may have
    /// advanced after the sweep read them.
    async fn find_lost_revision(
        &self,
        suspects: &HashMap<Scope, Revision>,
        connection: &mut SweepConnection,
    ) -> Result<Option<Scope>, StoreError> {
        let scopes: Vec<_> = suspects.keys().copied().collect();
        for batch in scopes.chunks(BATCH) {
            let heads = connection.heads(batch).await?;
            if let Some((scope, _)) = heads.iter().find(|(scope, head)| *head < suspects[scope]) {
                return Ok(Some(*scope));
            }
        }
        Ok(None)
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
    pub(super) async fn start_timeline(
        &self,
        cause: TimelineBreak,
        sweep: &Sweep,
        connection: &mut SweepConnection,
    ) {
        tracing::warn!(
            reason = cause.reason(),
            server = sweep.server,
            "database timeline changed; dropping memory and notifying every stream"
        );
        // Before memory is cleared, so that nothing is loaded into it from connections to another server.
        self.store.retire_connections();
        self.pending.drop_revisions();
        self.replicas.forget_revisions();
        if let Some(follower) = self.follower.get() {
            follower.forget_all();
        }
        self.hub.restart();
        // The notification connections are reopened, since they may lead to another server.
        self.next_timeline();
        // Other replicas may have nothing in memory that reveals the loss.
        if let TimelineBreak::Revision(scope) = cause {
            tracing::warn!(scope = %scope.0, "database lacks a revision held in memory; renewing the epoch");
            if let Err(error) = connection.renew_epoch(sweep.epoch).await {
                tracing::warn!(%error, "renewing the epoch failed");
            }
        }
    }
}
