//! `[cache]`: how much is held in memory.

use super::number::{GIB, MIB};
use super::section::section;

section! {
    /// How much is held in memory.
    #[derive(Clone, Debug)]
    pub struct Cache["cache"] {
        /// Agents whose catalogs are held in memory.
        agents: count(usize, 1..=1_000_000) = 1000,
        /// Tenants whose keys and agents are held in memory.
        tenants: count(usize, 1..=1_000_000) = 10_000,
        /// Sessions held in memory.
        sessions: count(usize, 1..=10_000_000) = 100_000,
        /// Encoded results.
        result_bytes: size(u64, 0..=1024 * GIB) = 256 * MIB,
        /// Contents of resources.
        content_bytes: size(u64, 0..=1024 * GIB) = 256 * MIB,
        /// Compiled templates and prompts.
        compiled_bytes: size(u64, 0..=1024 * GIB) = 64 * MIB,
    }
}
