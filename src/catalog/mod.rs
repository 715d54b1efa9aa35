//! The catalogs of agents: resources, resource templates, prompts, skills, mounts, and manifests, which contain all of them.
//!
//! [`Catalog`] answers reads from an agent's [`snapshot`], patched from its changes by the cache rule
//! ([`crate::cache`]), and writes definitions in transactions. Contents are immutable and cached by their hash;
//! templates are compiled once for each of their revisions ([`render`]).

mod compile;
mod compiled;
pub mod complete;
pub mod definitions;
mod follower;
mod limits;
pub mod manifest;
pub mod mounts;
mod outside;
mod plan;
mod prefix_index;
mod prompts;
pub mod read;
pub mod readiness;
pub mod render;
mod rendered;
pub mod resources;
pub mod search;
mod served;
mod skill_placement;
pub mod skills;
pub mod snapshot;
mod target;
pub mod template_set;
mod templates;
mod warm;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::compiled::Compilations;
pub use self::limits::{CatalogLimits, SearchLimits};
use self::render::Renderer;
use self::search::Searches;
use self::snapshot::AgentCell;
use self::watch::WatchedFiles;
use crate::cache::{CellMap, Loader, MemoryBudget, ScopeMap, WeighedCache, Writer};
use crate::model::content::ContentHash;
use crate::model::ids::AgentId;
use crate::model::system::System;
use crate::sources::Fetcher;
use crate::store::Store;

/// Reads and writes the catalogs of agents.
#[derive(Debug)]
pub struct Catalog {
    store: Store,
    system: System,
    loader: Arc<Loader>,
    writer: Arc<Writer>,
    scopes: Arc<ScopeMap>,
    agents: Arc<CellMap<AgentCell>>,
    /// Contents by their hash; immutable, so never invalidated.
    contents: Arc<WeighedCache<(AgentId, ContentHash), Bytes>>,
    compilations: Compilations,
    renderer: Renderer,
    searches: Searches,
    limits: CatalogLimits,
    /// Content that comes from connections.
    fetcher: Arc<Fetcher>,
    watched_files: Arc<WatchedFiles>,
    /// Stops loads and builds of indexes that go on without a caller.
    stop: CancellationToken,
    /// Does so when this is dropped.
    _stop: DropGuard,
}

impl Catalog {
    /// Creates the service over the snapshots of `agents`, which `scopes` must contain.
    pub fn new(
        (store, system): (Store, System),
        (loader, writer, scopes): (Arc<Loader>, Arc<Writer>, Arc<ScopeMap>),
        (agents, fetcher): (Arc<CellMap<AgentCell>>, Arc<Fetcher>),
        budget: &Arc<MemoryBudget>,
        limits: CatalogLimits,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            store,
            system,
            loader,
            writer,
            scopes,
            agents,
            contents: WeighedCache::new(budget, "contents", |_| false),
            compilations: Compilations::new(budget),
            renderer: Renderer::new(limits.rendering),
            searches: Searches::new(budget, limits.search),
            limits,
            fetcher,
            watched_files: Arc::default(),
            _stop: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Fetches content from connections.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Renders templates and runs other bounded jobs off the async threads.
    pub fn renderer(&self) -> &Renderer {
        &self.renderer
    }
}
