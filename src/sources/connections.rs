//! Connections: stored ones for the administration API, and those in memory with their sources. Writes are in `writes.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use content_source::{Source, SourceContext, connect};
use serde_json::{Map, Value};

use super::memory::{Connection, ConnectionMemory};
use super::secrets::{KeyFile, KeyFileError, KeyRing};
use crate::cache::{LoadLimiter, Loader, Writer};
use crate::model::caller::Payer;
use crate::model::connection::StoredConnection;
use crate::model::fault::Fault;
use crate::model::ids::{ConnectionId, Slug, TenantId};
use crate::model::system::{FailPoint, System};
use crate::store::connections::ConnectionAddress;
use crate::store::{Store, StoreError};

pub(super) const NO_CONNECTION: Fault = Fault::NotFound("connection");
/// The maximum number of concurrent look-ups of hooks.
const HOOK_LOOK_UPS: usize = 2;

/// Reads and writes connections, and builds their sources.
pub struct Connections {
    pub(super) store: Store,
    pub(super) system: System,
    pub(super) loader: Arc<Loader>,
    pub(super) writer: Arc<Writer>,
    pub(super) memory: Arc<ConnectionMemory>,
    pub(super) context: Arc<SourceContext>,
    pub(super) keys: KeyFile,
    /// Of look-ups of hooks, which need no credential: they wait for each other, and take no permits from other loads.
    pub(super) hook_look_ups: LoadLimiter,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    /// Creates the service over `memory`, which the map of scopes must contain.
    pub fn new(
        (store, system): (Store, System),
        (loader, writer): (Arc<Loader>, Arc<Writer>),
        memory: Arc<ConnectionMemory>,
        context: SourceContext,
        keys: KeyFile,
    ) -> Self {
        let hook_look_ups = LoadLimiter::new(HOOK_LOOK_UPS);
        Self { store, system, loader, writer, memory, context: Arc::new(context), keys, hook_look_ups }
    }

    /// Checks that the file of keys can decrypt every secret.
    ///
    /// # Errors
    /// [`KeyFileError`]; a file is required as soon as there is a secret. The outer error is the database's.
    pub async fn check_keys(&self) -> Result<Result<(), KeyFileError>, StoreError> {
        let keys = match self.keys.read().await {
            Ok(keys) => keys.ids(),
            Err(KeyFileError::NotSet) => Vec::new(),
            Err(error) => return Ok(Err(error)),
        };
        Ok(match self.store.secret_of_other_key(&keys).await? {
            None => Ok(()),
            Some(_) if keys.is_empty() => Err(KeyFileError::NotSet),
            Some((secret, key)) => Err(KeyFileError::Missing { file: self.keys.name(), key, secret }),
        })
    }

    /// A stored connection.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn stored(&self, slug: &str) -> Result<StoredConnection, Fault> {
        let slug = Slug::parse(slug).map_err(|_| NO_CONNECTION)?;
        self.store.connection(&slug).await?.ok_or(NO_CONNECTION)
    }

    /// Stored connections after a slug, in byte order; with a tenant, those that it may use.
    pub async fn list(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<StoredConnection>, Fault> {
        Ok(self.store.stored_connections(tenant, after, limit).await?)
    }

    /// The connections that a tenant's definitions name.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for the first that does not exist or that the tenant may not use.
    pub async fn named(
        &self,
        tenant: TenantId,
        ids: &[String],
    ) -> Result<BTreeMap<Slug, ConnectionAddress>, Fault> {
        let known = self.store.connections_named(tenant, ids).await?;
        match ids.iter().find(|id| !known.contains_key(id.as_str())) {
            None => Ok(known),
            Some(unknown) => Err(Fault::unknown("connection", unknown)),
        }
    }

    /// A connection, for a read that `payer` pays for; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if it is not in memory and the database cannot be reached.
    pub async fn get(&self, payer: Payer, uid: ConnectionId) -> Result<Option<Arc<Connection>>, Fault> {
        let known = &self.memory.known;
        let load = async || {
            let read = async {
                let (head, stored) = self.store.look_up_connection(uid).await?;
                let connection = match stored {
                    Some(stored) => Some(Arc::new(self.built(stored).await)),
                    None => None,
                };
                Ok((head, connection))
            };
            let keep = |facts: &mut super::memory::Known, found: &Option<Arc<Connection>>| {
                if let Some(connection) = found {
                    facts.keep(connection);
                }
            };
            known.load(&self.system, FailPoint::CacheFillRead, read, keep).await
        };
        self.loader.find(payer, known, |facts| facts.get(uid), load).await
    }

    /// A connection if it is in memory and no change of it is known.
    pub fn current_in_memory(&self, uid: ConnectionId) -> Option<Arc<Connection>> {
        self.memory.known.get(|facts| facts.get(uid))
    }

    /// A connection if it is in memory, however old.
    pub fn in_memory(&self, uid: ConnectionId) -> Option<Arc<Connection>> {
        self.memory.known.get_stale(|facts| facts.last(uid))
    }

    /// The connections in memory, however old.
    pub fn all_in_memory(&self) -> Vec<Arc<Connection>> {
        self.memory.known.get_stale(|facts| Some(facts.all())).unwrap_or_default()
    }

    async fn built(&self, stored: StoredConnection) -> Connection {
        let source = match self.source(&stored).await {
            Ok(source) => Some(source),
            Err(error) => {
                tracing::error!(connection = %stored.slug, %error, "connection cannot be used");
                None
            }
        };
        let StoredConnection { uid, slug, kind, revision, tenants, limits, enabled, .. } = stored;
        Connection {
            uid,
            id: slug,
            kind,
            revision,
            tenants,
            limits,
            enabled,
            source,
            health: super::Health::default(),
            built: Instant::now(),
        }
    }

    async fn source(&self, stored: &StoredConnection) -> Result<Arc<dyn Source>, Fault> {
        let secrets = if stored.secrets.is_empty() {
            Map::new()
        } else {
            let keys = self.keys.read().await?;
            stored
                .secrets
                .keys()
                .map(|name| Ok((name.clone(), opened(&keys, stored, name)?)))
                .collect::<Result<_, Fault>>()?
        };
        self.connected(stored, secrets).await
    }

    /// Validates settings and secrets, and builds the source.
    pub(super) async fn connected(
        &self,
        stored: &StoredConnection,
        secrets: Map<String, Value>,
    ) -> Result<Arc<dyn Source>, Fault> {
        let (kind, settings) = (stored.kind, Value::Object(stored.settings.clone()));
        let context = Arc::clone(&self.context);
        // It may read files, such as certificates.
        let job = move || connect(kind, &settings, &secrets, &context);
        let connected = tokio::task::spawn_blocking(job).await;
        let connected = connected.map_err(|error| Fault::Internal(error.to_string()))?;
        connected.map_err(|error| Fault::invalid_params(error.to_string()))
    }
}

/// The value of a stored secret.
pub(super) fn opened(keys: &KeyRing, of: &StoredConnection, name: &str) -> Result<Value, Fault> {
    let unreadable =
        |why: &str| Fault::invalid_params(format!("secrets.{name} cannot be decrypted: {why}; set it again"));
    let Some(secret) = of.secrets.get(name) else { return Ok(Value::Null) };
    let value = keys.open(of.uid.0, name, &secret.sealed).map_err(|error| unreadable(&error.to_string()))?;
    serde_json::from_slice(&value).map_err(|_| unreadable("it is not JSON"))
}
