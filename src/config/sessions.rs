//! `[sessions]`: the sessions of the legacy revisions, and the streams of both eras.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
};

/// The sessions of the legacy revisions, and the streams of both eras.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// How long a session lasts that nobody uses and that has no open stream.
    pub idle: Duration,
    /// How many resources one session may be subscribed to.
    pub subscriptions: usize,
    /// How many sessions one principal, or one address without a credential, may have with one agent; past a sixteenth
    /// more, those used longest ago end, those with an open stream last.
    pub per_principal: u32,
    /// How often a stream carries a comment, and is checked whether it may go on.
    pub keep_alive: Duration,
}

impl Sessions {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            idle: reader.value(
                "sessions.idle_seconds",
                &Time::seconds(2..=2_592_000),
                Duration::from_mins(30),
            ),
            subscriptions: reader.value("sessions.subscriptions", &Count(1..=100_000), 1000),
            per_principal: reader.value("sessions.per_principal", &Count(1..=100_000), 1000),
            keep_alive: reader.value(
                "sessions.keep_alive_seconds",
                &Time::seconds(1..=3600),
                Duration::from_secs(15),
            ),
        }
    }
}
