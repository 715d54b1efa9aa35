//! The limits of the catalog. Each has a setting, documented in `config/waggle.toml`.

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
    /// The maximum number of files of one skill, and of their bytes.
    pub skill: ::skill::Limits,
    /// The maximum total bytes of the registered resources that one prompt embeds in an answer.
    pub embedded_bytes: usize,
    /// Maximum number of concurrent renders, and the limits of each.
    pub rendering: RendererLimits,
    /// The number of definitions on a page of a list.
    pub page_size: usize,
}
