//! Builds the services over the database, and runs their maintenance.

use std::sync::Arc;

use super::background::Background;
use super::memory::cache_bytes;
use super::options::{
    catalog_limits, fetch_options, identity_limits, load_options, queue_options, session_limits,
    source_context,
};
use crate::cache::{CellMap, Loader, MemoryBudget, ScopeMap, StoreMaintenance, Writer};
use crate::catalog::Catalog;
use crate::config::Settings;
use crate::feed::Feed;
use crate::identity::tokens::Tokens;
use crate::identity::{Identity, IdentityMemory};
use crate::model::feed::ChangeFeed;
use crate::model::system::System;
use crate::sessions::Sessions;
use crate::sources::secrets::KeyFile;
use crate::sources::{ConnectionMemory, Connections, Fetcher};
use crate::store::Store;
use crate::store::horizon::Horizon;

/// How long startup waits for the filter of issued keys.
const ISSUED_KEYS_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// How exactly it is known when entries of caches were used while nothing is inserted.
const TICK: std::time::Duration = std::time::Duration::from_secs(1);

/// The services over the database.
#[derive(Debug, Clone)]
pub struct DatabaseServices {
    /// Credentials, access, tenants, agents and keys.
    pub identity: Arc<Identity>,
    /// What agents publish.
    pub catalog: Arc<Catalog>,
    /// Connections to content from outside.
    pub connections: Arc<Connections>,
    /// Sessions of the legacy era.
    pub sessions: Arc<Sessions>,
    /// Purging and pruning.
    pub maintenance: Arc<StoreMaintenance>,
    /// The memory of all caches.
    pub budget: Arc<MemoryBudget>,
    /// Runs the writes of all of these.
    pub writer: Arc<Writer>,
}

impl DatabaseServices {
    /// Builds the services with nothing in memory.
    pub(super) fn new(
        settings: &Settings,
        (store, system): (&Store, &System),
        feed: &Arc<Feed>,
        tokens: Arc<Tokens>,
    ) -> Self {
        let over = || (store.clone(), system.clone());
        let change_feed = || Arc::clone(feed) as Arc<dyn ChangeFeed>;
        let budget = MemoryBudget::of_process(cache_bytes(settings));
        let memory = Arc::new(IdentityMemory::new(&budget));
        let agents = Arc::new(CellMap::new(&budget, "agents"));
        let session_cells = Arc::new(CellMap::new(&budget, "sessions"));
        let connected = Arc::new(ConnectionMemory::new(&budget));
        // Identity is last: a scope that belongs to no other service is a tenant's.
        let scopes = Arc::new(ScopeMap::new(vec![
            Arc::clone(&agents) as Arc<_>,
            Arc::clone(&session_cells) as Arc<_>,
            Arc::clone(&connected) as Arc<_>,
            Arc::clone(&memory) as Arc<_>,
        ]));
        let loader =
            Arc::new(Loader::new(store.clone(), system.clone(), change_feed(), load_options(settings)));
        let writer =
            Arc::new(Writer::new(over(), change_feed(), Arc::clone(&scopes), queue_options(settings)));
        let cached = || (Arc::clone(&loader), Arc::clone(&writer), Arc::clone(&scopes));
        let identity =
            Identity::new(over(), cached(), (memory, feed.health()), tokens, identity_limits(settings));
        let written = (Arc::clone(&loader), Arc::clone(&writer));
        let connections = Arc::new(Connections::new(
            over(),
            written.clone(),
            connected,
            source_context(settings, &store.location()),
            KeyFile::new(settings.sources.key_file.clone()),
        ));
        let clock = Arc::clone(&system.clock);
        let fetcher = Fetcher::new(Arc::clone(&connections), clock, &budget, fetch_options(settings));
        let held = (agents, Arc::new(fetcher));
        let catalog = Catalog::new(over(), cached(), held, &budget, catalog_limits(settings));
        let sessions = Sessions::new(over(), written, (session_cells, &budget), session_limits(settings));
        let maintenance = StoreMaintenance::new(store.clone(), system.clone(), settings.changes.retain);
        Self {
            identity: Arc::new(identity),
            catalog: Arc::new(catalog),
            connections,
            sessions: Arc::new(sessions),
            maintenance: Arc::new(maintenance),
            budget,
            writer,
        }
    }

    /// Starts the maintenance of all services, which runs until `stop`, and loads the `warm` agents used last in the
    /// background. Returns once the filter of issued keys is loaded, or loading it took too long.
    pub(super) async fn start(&self, background: &Background, warm: usize) {
        let Self { identity, catalog, sessions, maintenance, budget, .. } = self.clone();
        background.spawn_until_stopped(async move { keep_time(&budget).await });
        let maintained = Arc::clone(&identity);
        background.spawn(|stop| async move { maintained.run_maintenance(stop).await });
        background.spawn(|stop| async move { sessions.run_maintenance(stop).await });
        background.spawn(|stop| async move { maintenance.run(stop).await });
        let loaded = load_issued_keys(&identity).await;
        if warm > 0 {
            let identity = Arc::clone(&identity);
            background.spawn_until_stopped(async move { warm_up(&identity, &catalog, warm).await });
        }
        background.spawn(|stop| async move { identity.follow_issued_keys(loaded, &stop).await });
    }

    /// Waits for the writes in progress.
    pub(super) async fn drain(&self) {
        self.writer.drain().await;
    }
}

/// Advances the clock by which the entries of caches were used.
async fn keep_time(budget: &MemoryBudget) {
    let mut interval = aligned_timers::interval(TICK);
    loop {
        interval.tick().await;
        budget.tick();
    }
}

/// Loads the agents used last. What fails is loaded when it is requested.
async fn warm_up(identity: &Identity, catalog: &Catalog, most: usize) {
    let began = std::time::Instant::now();
    match catalog.warm(identity, most).await {
        Ok(agents) => {
            // A number in logs as JSON, which 128 bits are not.
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(agents, took_ms, "agents used last loaded");
        }
        Err(error) => tracing::debug!(%error, "agents used last not loaded"),
    }
}

/// Loads the filter of issued keys before the first request; in the background, where that takes too long or fails.
async fn load_issued_keys(identity: &Identity) -> Option<Horizon> {
    match tokio::time::timeout(ISSUED_KEYS_TIMEOUT, identity.load_issued_keys()).await {
        Ok(Ok(horizon)) => Some(horizon),
        Ok(Err(error)) => {
            tracing::warn!(%error, "filter of issued keys not loaded; retrying");
            None
        }
        Err(_) => None,
    }
}
