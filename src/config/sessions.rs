//! `[sessions]`: sessions of the legacy revisions, and streams of both eras.

use super::section::section;

section! {
    /// Sessions of the legacy revisions, and streams of both eras.
    #[derive(Clone, Debug)]
    pub struct Sessions["sessions"] {
        /// The idle timeout: how long a session without use and without an open stream lasts.
        idle: seconds(1..=2_592_000) = 1800,
        /// How many resources one session may subscribe to.
        subscriptions: count(usize, 1..=100_000) = 1000,
        /// How many sessions one principal, or one address (an IPv6 /64 is one) without a credential, may have with one
        /// agent. Above a sixteenth more, the least recently used ones end, down to this number; those with an open stream
        /// end last. Three replicas or more may together exceed this within a second, until the next one is opened.
        per_principal: count(u32, 1..=100_000) = 1000,
        /// How often a stream sends a comment and its credential is checked again.
        keep_alive: seconds(1..=3600) = 15,
    }
}
