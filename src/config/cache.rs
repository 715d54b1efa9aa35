//! `[cache]`: how much is held in memory.

use super::number::{GIB, MIB, Size};
use super::section::section;

section! {
    /// How much is held in memory.
    #[derive(Clone, Debug)]
    pub struct Cache["cache"] {
        /// Everything cached, together: catalogs of agents, encoded results, contents, compiled templates, keys, sessions
        /// and the directory. Default: a quarter of the memory that the process may use, by its control groups and the
        /// machine.
        bytes: optional(u64, Size(16 * MIB..=1024 * GIB), "256 MiB"),
        /// Agents that are loaded in the background after the start: those used last. 0: none.
        warm_agents: count(usize, 0..=1_000_000) = 1000,
    }
}
