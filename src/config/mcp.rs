//! `[mcp]`: what the MCP endpoints tell their clients.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
};

/// What the MCP endpoints tell their clients.
#[derive(Clone, Debug)]
pub struct Mcp {
    /// How long clients may keep an answer: `ttlMs` of lists, reads and discovery.
    pub ttl: Duration,
    /// How many items a page of a list holds.
    pub page_size: usize,
}

impl Mcp {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            ttl: reader.value("mcp.ttl_ms", &Time::milliseconds(0..=86_400_000), Duration::ZERO),
            page_size: reader.value("mcp.page_size", &Count(1..=1000), 100),
        }
    }
}
