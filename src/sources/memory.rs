//! The connections in memory of this replica, and a connection with its source.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use content_source::{FetchError, Kind, Source};

use super::health::{FailedFetch, Health, State};
use crate::cache::{Cell, CellSet, Invalidate, MemoryBudget, ScopeCell};
use crate::model::allocated::{behind_arc, table};
use crate::model::connection::{ConnectionLimits, Tenants};
use crate::model::ids::{ConnectionId, Slug, TenantId};
use crate::model::scope::{Change, ChangeKind, Revision, Scope};

/// What a connection takes in memory with its source: an estimate, most of it TLS configuration.
const SOURCE_BYTES: usize = 64 << 10;
/// For how long a connection whose settings or secrets cannot be used is not built again: a build reads the database, and is
/// logged as an error. A file that is repaired takes effect afterwards.
const REBUILD: Duration = Duration::from_secs(5);

/// A connection to content from outside.
pub struct Connection {
    /// Its UUID.
    pub uid: ConnectionId,
    /// Its id in the administration API.
    pub id: Slug,
    /// What it connects to.
    pub kind: Kind,
    /// The revision that last changed it: part of the cache keys of its content.
    pub revision: Revision,
    /// The tenants that may use it.
    pub tenants: Tenants,
    /// The limits of fetches, for each tenant.
    pub limits: ConnectionLimits,
    /// Whether it is enabled: a disabled connection is never fetched from.
    pub enabled: bool,
    /// The results of its recent fetches.
    pub health: Health,
    /// `None` if its settings or secrets cannot be used.
    pub(super) source: Option<Arc<dyn Source>>,
    /// When the source was built, or could not be.
    pub(super) built: Instant,
}

impl Connection {
    /// The source, for a tenant.
    ///
    /// # Errors
    /// [`FetchError::NotAllowed`] if the tenant may not use the connection, or it is disabled; [`FetchError::Denied`] if its
    /// settings or secrets cannot be used.
    pub fn source(&self, tenant: TenantId) -> Result<&Arc<dyn Source>, FetchError> {
        if self.tenants.contains(tenant) { self.enabled_source() } else { Err(FetchError::NotAllowed) }
    }

    /// The source, shared by all tenants.
    pub(super) fn enabled_source(&self) -> Result<&Arc<dyn Source>, FetchError> {
        if self.enabled {
            self.source.as_ref().ok_or(FetchError::Denied)
        } else {
            Err(FetchError::NotAllowed)
        }
    }

    /// The number of tenants for which the last fetch failed; 1 if it is enabled and its settings or secrets cannot be used.
    pub fn failing(&self) -> usize {
        if self.enabled && self.source.is_none() { 1 } else { self.health.failing()[0] }
    }

    /// Its state for a tenant; without one, the worst of all tenants.
    pub fn state(&self, tenant: Option<TenantId>) -> State {
        let own = match (self.enabled, &self.source) {
            (false, _) => State::Disabled,
            (true, None) => State::Failed,
            (true, Some(_)) => State::Ready,
        };
        own.max(self.health.state(tenant))
    }

    /// The last fetch that failed.
    pub fn last_failure(&self) -> Option<FailedFetch> {
        self.health.last_failure()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Connections by UUID.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<ConnectionId, Arc<Connection>>);

impl Known {
    /// A connection that need not be built again.
    pub(super) fn get(&self, uid: ConnectionId) -> Option<Arc<Connection>> {
        self.last(uid).filter(|found| found.source.is_some() || found.built.elapsed() < REBUILD)
    }

    /// A connection as it was built last.
    pub(super) fn last(&self, uid: ConnectionId) -> Option<Arc<Connection>> {
        self.0.get(&uid).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Connection>> {
        self.0.values().cloned().collect()
    }

    pub(super) fn keep(&mut self, connection: &Arc<Connection>) {
        self.0.insert(connection.uid, Arc::clone(connection));
    }
}

impl Invalidate for Known {
    fn invalidate(&mut self, change: &Change) {
        match change.kind {
            ChangeKind::Connection => {
                let uid = change.subject.parse().ok().map(ConnectionId);
                uid.map(|uid| self.0.remove(&uid));
            }
            ChangeKind::Unknown => self.0.clear(),
            _ => {}
        }
    }

    fn heap(&self) -> usize {
        let of_each = behind_arc(size_of::<Connection>()) + SOURCE_BYTES;
        table::<(ConnectionId, Arc<Connection>)>(self.0.capacity()) + self.0.len() * of_each
    }
}

/// The memory of [`Connections`](super::Connections).
#[derive(Debug)]
pub struct ConnectionMemory {
    pub(super) known: Arc<Cell<Known>>,
}

impl ConnectionMemory {
    /// Creates an empty memory within `budget`.
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { known: Arc::new(Cell::new(Scope::CONNECTIONS, budget.pin("connections"))) }
    }
}

impl CellSet for ConnectionMemory {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        (scope == Scope::CONNECTIONS).then(|| Arc::clone(&self.known) as Arc<dyn ScopeCell>)
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        self.known.applied().map(|applied| (Scope::CONNECTIONS, applied)).into_iter().collect()
    }

    fn clear(&self) {
        self.known.restart();
    }
}
