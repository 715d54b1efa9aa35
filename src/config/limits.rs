//! `[limits]`: what one request, one resource and one agent may hold.

use super::{
    number::{Count, Size},
    reader::Reader,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What one request, one resource and one agent may hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The body of one MCP request, in bytes.
    pub body_bytes: usize,
    /// The contents of one resource, in bytes.
    pub content_bytes: usize,
    /// The manifest of one agent as JSON, in bytes.
    pub manifest_bytes: usize,
    /// How many resources one agent may register.
    pub resources_per_agent: u32,
    /// How many resource templates one agent may register.
    pub templates_per_agent: u32,
    /// How many prompts one agent may register.
    pub prompts_per_agent: u32,
    /// How many templates and prompts are rendered at once, each on a thread of its own.
    pub concurrent_renders: usize,
    /// How many more may wait to be rendered; those above are answered `503`.
    pub waiting_renders: usize,
    /// How many requests are served at once; those above are answered `503`.
    pub concurrent_requests: usize,
    /// How many streams one key may have open; those above are answered `429`.
    pub streams_per_key: usize,
    /// How many streams are open at once; those above are answered `503`.
    pub streams: usize,
}

impl Limits {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            body_bytes: reader.value("limits.body_bytes", &Size(KIB..=64 * MIB), 4 * MIB),
            content_bytes: reader.value("limits.content_bytes", &Size(KIB..=256 * MIB), 16 * MIB),
            manifest_bytes: reader.value("limits.manifest_bytes", &Size(KIB..=1024 * MIB), 64 * MIB),
            resources_per_agent: reader.value("limits.resources_per_agent", &Count(1..=10_000_000), 100_000),
            templates_per_agent: reader.value("limits.templates_per_agent", &Count(1..=1_000), 1_000),
            prompts_per_agent: reader.value("limits.prompts_per_agent", &Count(1..=100_000), 10_000),
            concurrent_renders: reader.value("limits.concurrent_renders", &Count(1..=256), 4),
            waiting_renders: reader.value("limits.waiting_renders", &Count(0..=100_000), 256),
            concurrent_requests: reader.value("limits.concurrent_requests", &Count(1..=1_000_000), 1024),
            streams_per_key: reader.value("limits.streams_per_key", &Count(1..=1_000_000), 100),
            streams: reader.value("limits.streams", &Count(1..=1_000_000), 10_000),
        }
    }
}
