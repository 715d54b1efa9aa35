//! `[changes]`: how replicas tell each other what changed.

use std::time::Duration;

use super::{number::Time, reader::Reader};

/// How replicas tell each other what changed.
#[derive(Clone, Debug)]
pub struct Changes {
    /// How long notifications are gathered before they are sent together.
    pub notify: Duration,
}

impl Changes {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            notify: reader.value(
                "changes.notify_ms",
                &Time::milliseconds(0..=1000),
                Duration::from_millis(3),
            ),
        }
    }
}
