//! `[mcp]`: the answers of the MCP endpoints.

use super::section::section;

section! {
    /// The answers of the MCP endpoints.
    #[derive(Clone, Debug)]
    pub struct Mcp["mcp"] {
        /// How long clients may cache a result: `ttlMs` of lists, reads and server/discover.
        ttl: milliseconds(0..=86_400_000) = 0,
        /// Items on a page of a list.
        page_size: count(usize, 1..=1000) = 100,
    }
}
