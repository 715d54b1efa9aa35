//! `[access]`: what is remembered of credentials, and how guessing is slowed.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
};

/// What is remembered of credentials, and how guessing is slowed.
#[derive(Clone, Debug)]
pub struct Access {
    /// How long known credentials and what is in memory are served while the database is away.
    pub stale: Duration,
    /// How many keys that are not known to be issued may be looked up in a second, for all addresses together. One
    /// address has a quarter of it.
    pub unknown_keys_per_second: u32,
    /// How many keys that do not exist are remembered, so as not to be looked up again.
    pub unknown_keys_remembered: usize,
}

impl Access {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            stale: reader.value("access.stale_seconds", &Time::seconds(0..=86_400), Duration::from_mins(1)),
            unknown_keys_per_second: reader.value(
                "access.unknown_keys_per_second",
                &Count(1..=1_000_000),
                200,
            ),
            unknown_keys_remembered: reader.value(
                "access.unknown_keys_remembered",
                &Count(1..=1_000_000),
                10_000,
            ),
        }
    }
}
