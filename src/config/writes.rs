//! `[writes]`: how long writers of one agent queue for each other.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
};

/// How long writers of one agent queue for each other, before they take a connection.
#[derive(Clone, Debug)]
pub struct Writes {
    /// How many writes of one agent may wait; those above are answered `503`.
    pub queue_per_agent: usize,
    /// How long a write may wait.
    pub wait: Duration,
}

impl Writes {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            queue_per_agent: reader.value("writes.queue_per_agent", &Count(1..=100_000), 1024),
            wait: reader.value("writes.wait_seconds", &Time::seconds(1..=600), Duration::from_secs(10)),
        }
    }
}
