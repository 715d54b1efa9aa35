//! The changes of a scope as they are read, with whom they concern.

use time::OffsetDateTime;

use super::audience::Audience;
use super::scope::{Change, Head};

/// The changes of a scope after a revision, with its head as of the same moment.
#[derive(Debug)]
pub struct ScopeChanges {
    /// The head of the scope.
    pub head: Head,
    /// The changes with their audiences, in order.
    pub changes: Vec<(Change, Audience)>,
    /// When the oldest of them was made, by the database's clock.
    pub oldest: Option<OffsetDateTime>,
}
