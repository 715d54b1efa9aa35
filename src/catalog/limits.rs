//! The limits of the catalog. Each has a setting, documented in `config/waggle.toml`.

use std::time::Duration;

use super::render::RendererLimits;

/// The limits of [`Catalog`](super::Catalog).
#[derive(Debug, Clone)]
pub struct CatalogLimits {
    /// The maximum number of resources of one agent.
    pub resources_per_agent: usize,
    /// The maximum number of resource templates of one agent.
    pub templates_per_agent: usize,
    /// The maximum number of prompts of one agent.
    pub prompts_per_agent: usize,
    /// The maximum number of mounts of one agent.
    pub mounts_per_agent: usize,
    /// The maximum number of files that one mount lists.
    pub mount_entries: usize,
    /// The maximum number of files of one skill, and of their bytes.
    pub skill: ::skill::Limits,
    /// The maximum total bytes of the registered resources that one prompt embeds in an answer.
    pub embedded_bytes: usize,
    /// Maximum number of concurrent renders, and the limits of each.
    pub rendering: RendererLimits,
    /// The number of definitions on a page of a list.
    pub page_size: usize,
    /// The maximum number of bytes that are stored of watched content of a connection.
    pub watched_bytes: u64,
    /// The limits of search.
    pub search: SearchLimits,
}

/// The limits of the search in agents.
#[derive(Debug, Clone, Copy)]
pub struct SearchLimits {
    /// The maximum number of bytes of a resource's text that are indexed.
    pub document_bytes: usize,
    /// The maximum number of indexes that are built, and that are patched, concurrently.
    pub concurrent_builds: usize,
    /// How long a search waits for the index.
    pub wait: Duration,
}
