//! `[access]`: cached credentials, and protection from guessing.

use super::section::section;

section! {
    /// Cached credentials, and protection from guessing.
    #[derive(Clone, Debug)]
    pub struct Access["access"] {
        /// How long known credentials and answers from memory are served during a database outage.
        stale: seconds(0..=86_400) = 60,
        /// How many keys that this replica does not know to be issued are looked up per second: forged ones, and those
        /// created on another replica a moment ago. One address may use a quarter of it. Issued keys do not count.
        unknown_keys_per_second: count(u32, 1..=1_000_000) = 200,
    }
}
