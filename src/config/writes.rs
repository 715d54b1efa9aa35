//! `[writes]`: the write queue of an agent.

use super::section::section;

section! {
    /// How long writers of one agent wait for each other, before they take a connection.
    #[derive(Clone, Debug)]
    pub struct Writes["writes"] {
        /// How many writes of one agent may wait; further ones are answered 503.
        queue_per_agent: count(usize, 1..=100_000) = 1024,
        /// How long a write may wait.
        wait: seconds(1..=600) = 10,
    }
}
