//! `[usage]`: how usage is counted.

use super::section::section;

section! {
    /// How usage is counted.
    #[derive(Clone, Debug)]
    pub struct Usage["usage"] {
        /// How often counts are written to the database. Quotas are exact; reported usage is as old as this.
        settle: seconds(1..=3_600) = 5,
        /// How long hourly counts are kept.
        retain: days(1..=3_650) = 400,
    }
}
