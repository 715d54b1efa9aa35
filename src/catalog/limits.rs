//! The bounds of the catalog. Each has a setting, documented in `config/waggle.toml`.

use super::render::RendererLimits;

/// The bounds of [`Catalog`](super::Catalog).
#[derive(Debug, Clone)]
pub struct CatalogLimits {
    /// Bytes of contents held in memory.
    pub cached_content_bytes: u64,
    /// Bytes of compiled templates and prompts held in memory.
    pub cached_compiled_bytes: u64,
    /// Resources of one agent.
    pub resources_per_agent: usize,
    /// Resource templates of one agent.
    pub templates_per_agent: usize,
    /// Prompts of one agent.
    pub prompts_per_agent: usize,
    /// Bytes of the registered resources that one prompt may embed in an answer, together.
    pub embedded_bytes: usize,
    /// Maximum number of concurrent renders, and the limits of each.
    pub rendering: RendererLimits,
    /// Definitions on a page of a list.
    pub page_size: usize,
}
