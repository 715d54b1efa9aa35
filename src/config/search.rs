//! `[search]`: the search in what an agent publishes.

use super::section::section;

const KIB: usize = 1 << 10;

section! {
    /// The search in what an agent publishes. An agent is indexed when it is first searched; its index counts to
    /// `cache.bytes`.
    #[derive(Clone, Debug)]
    pub struct Search["search"] {
        /// How many bytes of the text of one resource are indexed, from its beginning. The texts of an agent whose index
        /// would take more than a quarter of `cache.bytes` are not indexed: its names, titles, descriptions and URIs are.
        document_bytes: size(usize, KIB..=16 * 1024 * KIB) = 256 * KIB,
        /// How many indexes are built, and how many are patched, concurrently; in turn between tenants.
        concurrent_builds: count(usize, 1..=64) = 2,
        /// How long a search waits for an index that is being built; then it is answered 503.
        wait: milliseconds(0..=60_000) = 2000,
    }
}
