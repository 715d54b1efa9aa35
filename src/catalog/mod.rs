//! The catalogs of agents: resources, resource templates, prompts, and manifests, which contain all of them.
//!
//! [`Catalog`] answers reads from an agent's [`snapshot`], patched from its changes by the cache rule
//! ([`crate::cache`]), and writes definitions, one transaction each. Contents are immutable and cached by their hash;
//! templates are compiled once for each of their revisions ([`render`]).

mod compile;
mod compiled;
pub mod complete;
pub mod definitions;
mod follower;
mod limits;
pub mod manifest;
mod plan;
mod prefix_index;
mod prompts;
pub mod read;
pub mod readiness;
pub mod render;
mod rendered;
pub mod resources;
mod served;
pub mod snapshot;
mod target;
pub mod template_set;
mod templates;

use std::sync::Arc;

use bytes::Bytes;
use moka::sync::Cache;

use self::compiled::Compilations;
pub use self::limits::CatalogLimits;
use self::render::Renderer;
use self::snapshot::AgentCell;
use crate::cache::{CellMap, Loader, ScopeMap, Writer};
use crate::model::content::ContentHash;
use crate::model::ids::AgentId;
use crate::model::sources::Sources;
use crate::store::Store;

/// The overhead of an entry in the cache of contents, in bytes.
const ENTRY_BYTES: usize = 128;

/// Reads and writes the catalogs of agents.
#[derive(Debug)]
pub struct Catalog {
    store: Store,
    sources: Sources,
    loader: Arc<Loader>,
    writer: Arc<Writer>,
    scopes: Arc<ScopeMap>,
    agents: Arc<CellMap<AgentCell>>,
    /// Contents by their hash; immutable, so never invalidated.
    contents: Cache<(AgentId, ContentHash), Bytes>,
    compilations: Compilations,
    renderer: Renderer,
    limits: CatalogLimits,
}

/// Counters of the catalog, for metrics. Sizes of caches may lag behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogStats {
    /// Agents in memory.
    pub agents: u64,
    /// Bytes of contents in memory.
    pub content_bytes: u64,
    /// Bytes of compiled templates and prompts in memory.
    pub compiled_bytes: u64,
    /// The number of free permits of the renderer.
    pub free_renders: usize,
}

impl Catalog {
    /// Creates the service over the snapshots of `agents`, which `scopes` must contain.
    pub fn new(
        (store, sources): (Store, Sources),
        (loader, writer, scopes): (Arc<Loader>, Arc<Writer>, Arc<ScopeMap>),
        agents: Arc<CellMap<AgentCell>>,
        limits: CatalogLimits,
    ) -> Self {
        let weigh = |_: &_, bytes: &Bytes| u32::try_from(bytes.len() + ENTRY_BYTES).unwrap_or(u32::MAX);
        Self {
            store,
            sources,
            loader,
            writer,
            scopes,
            agents,
            contents: Cache::builder().max_capacity(limits.cached_content_bytes).weigher(weigh).build(),
            compilations: Compilations::new(limits.cached_compiled_bytes),
            renderer: Renderer::new(limits.rendering),
            limits,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> CatalogStats {
        CatalogStats {
            agents: self.agents.len() as u64,
            content_bytes: self.contents.weighted_size(),
            compiled_bytes: self.compilations.bytes(),
            free_renders: self.renderer.free(),
        }
    }
}
