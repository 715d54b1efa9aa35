//! `[usage]`: how what is used is counted.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
};

const DAY: Duration = Duration::from_hours(24);

/// How what is used is counted.
#[derive(Clone, Debug)]
pub struct Usage {
    /// How often counts are written down.
    pub settle: Duration,
    /// How long they are kept.
    pub retain: Duration,
}

impl Usage {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let settle = reader.value("usage.settle_seconds", &Time::seconds(1..=3_600), Duration::from_secs(5));
        let days: u32 = reader.value("usage.retain_days", &Count(1..=3_650), 400);
        Self { settle, retain: DAY * days }
    }
}
