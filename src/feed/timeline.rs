//! Notices that the database went back in time: a backup was restored under running replicas, or a standby took over
//! that lacked commits.
//!
//! Revisions in memory only rise. After such an event memory would show content that is lost, and later writes with
//! lower revisions would be taken for old news. Each sweep therefore compares the identity of the server and the epoch of
//! the gateway with those of the sweep before, and the revisions that it finds with those in memory.

use std::collections::HashMap;

use uuid::Uuid;

use super::Feed;
use crate::model::scope::{Revision, Scope};
use crate::store::StoreError;
use crate::store::changes::{Sweep, SweepConnection};

/// Scopes whose heads are asked for at once.
const BATCH: usize = 10_000;

/// The history that a sweep has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    server: String,
    epoch: Option<Uuid>,
    /// The first transaction id that was not assigned yet.
    next_xid: u64,
}

impl Timeline {
    pub(super) fn of(sweep: &Sweep) -> Self {
        Self { server: sweep.server.clone(), epoch: sweep.epoch, next_xid: sweep.next_xid }
    }
}

/// How it shows that the history is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    /// Another server, database or table answers.
    Server,
    /// The epoch was renewed.
    Epoch,
    /// A scope is at a lower revision than memory.
    Revision(Scope),
}

impl Break {
    fn reason(self) -> &'static str {
        match self {
            Self::Server => "server_changed",
            Self::Epoch => "epoch_renewed",
            Self::Revision(_) => "revision_lost",
        }
    }
}

impl Feed {
    /// Compares a sweep with the timeline of the one before. `reconnected`: the connection is a new one.
    pub(super) async fn find_break(
        &self,
        known: Option<&Timeline>,
        sweep: &Sweep,
        connection: &mut SweepConnection,
        reconnected: bool,
    ) -> Result<Option<Break>, StoreError> {
        let Some(known) = known else { return Ok(None) };
        if known.server != sweep.server {
            return Ok(Some(Break::Server));
        }
        if known.epoch != sweep.epoch {
            return Ok(Some(Break::Epoch));
        }
        // Another server process may answer on a new connection, and one that lost transactions gives out their ids anew.
        let suspects = if reconnected || sweep.next_xid < known.next_xid {
            self.held()
        } else {
            sweep.heads.iter().filter_map(|(scope, found)| self.above(*scope, *found)).collect()
        };
        let lost = self.find_lost(&suspects, connection).await?;
        Ok(lost.map(Break::Revision))
    }

    /// A scope whose head is below a revision that memory had before the question. Asked anew, since what a sweep has read
    /// may be older than what arrived in memory meanwhile.
    async fn find_lost(
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

    /// The revision of a scope in memory, where it is above the one found.
    fn above(&self, scope: Scope, found: Revision) -> Option<(Scope, Revision)> {
        let held = self.follower().and_then(|follower| follower.applied(scope));
        let seen = self.hub.seen(scope);
        held.max(seen).filter(|held| *held > found).map(|held| (scope, held))
    }

    /// The revisions of all scopes in memory.
    fn held(&self) -> HashMap<Scope, Revision> {
        let held = self.follower().map(|follower| follower.held()).unwrap_or_default();
        let mut all: HashMap<_, _> = held.into_iter().collect();
        for (scope, seen) in self.hub.all_seen() {
            let known = all.entry(scope).or_default();
            *known = (*known).max(seen);
        }
        all
    }

    /// Begins another timeline: nothing that is known of the old one holds.
    pub(super) async fn begin_timeline(&self, found: Break, sweep: &Sweep, connection: &mut SweepConnection) {
        tracing::warn!(
            reason = found.reason(),
            server = sweep.server,
            "database timeline changed; dropping memory and notifying every stream"
        );
        // Before memory is dropped, so that nothing is loaded into it from connections to another server.
        self.store.retire_connections();
        self.pending.drop_revisions();
        if let Some(follower) = self.follower() {
            follower.forget_all();
        }
        self.hub.restart();
        // The connections for notifications are opened anew, in case that they lead to another server.
        self.next_timeline();
        // The other replicas may have nothing in memory that shows it.
        if let Break::Revision(scope) = found {
            tracing::warn!(scope = %scope.0, "revision in memory is not in the database; renewing the epoch");
            if let Err(error) = connection.renew_epoch(sweep.epoch).await {
                tracing::warn!(%error, "epoch not renewed");
            }
        }
    }
}
