//! `[changes]`: notifications between replicas, and the retention of changes.

use super::section::section;

section! {
    /// Notifications between replicas, and the retention of changes.
    #[derive(Clone, Debug)]
    pub struct Changes["changes"] {
        /// The minimum interval between notifications to other replicas; changes in between are sent together.
        notify: milliseconds(0..=1000) = 3,
        /// How long changes are retained for clients that resume a stream; later they are notified of everything.
        retain: seconds(1..=31_536_000) = 86_400,
    }
}
