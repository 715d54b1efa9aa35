//! `[changes]`: how replicas tell each other what changed, and for how long it is known.

use std::time::Duration;

use super::{number::Time, reader::Reader};

/// How replicas tell each other what changed, and for how long it is known.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The least time between notifications that are sent; meanwhile they are gathered.
    pub notify: Duration,
    /// How long changes are kept for clients that were away.
    pub retain: Duration,
}

impl Changes {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            notify: reader.value(
                "changes.notify_ms",
                &Time::milliseconds(0..=1000),
                Duration::from_millis(3),
            ),
            retain: reader.value(
                "changes.retain_seconds",
                &Time::seconds(1..=31_536_000),
                Duration::from_hours(24),
            ),
        }
    }
}
