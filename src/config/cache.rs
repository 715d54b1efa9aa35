//! `[cache]`: how much is kept in memory.

use super::{
    number::{Count, GIB, MIB, Size},
    reader::Reader,
};

/// How much is kept in memory.
#[derive(Clone, Debug)]
pub struct Cache {
    /// How many agents' registries.
    pub agents: usize,
    /// How many tenants' keys and agents.
    pub tenants: usize,
    /// How many sessions.
    pub sessions: usize,
    /// Encoded answers, in bytes.
    pub result_bytes: u64,
    /// Contents of resources, in bytes.
    pub content_bytes: u64,
    /// Compiled templates and prompts, in bytes.
    pub compiled_bytes: u64,
}

impl Cache {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            agents: reader.value("cache.agents", &Count(1..=1_000_000), 1000),
            tenants: reader.value("cache.tenants", &Count(1..=1_000_000), 10_000),
            sessions: reader.value("cache.sessions", &Count(1..=10_000_000), 100_000),
            result_bytes: reader.value("cache.result_bytes", &Size(0..=1024 * GIB), 256 * MIB),
            content_bytes: reader.value("cache.content_bytes", &Size(0..=1024 * GIB), 256 * MIB),
            compiled_bytes: reader.value("cache.compiled_bytes", &Size(0..=1024 * GIB), 64 * MIB),
        }
    }
}
