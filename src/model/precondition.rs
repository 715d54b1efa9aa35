//! Conditional requests (RFC 9110, section 13.1): what a request requires of the current state, and the outcome of a write.

use super::fault::Fault;
use super::scope::Revision;

/// What a request requires of the current state; nothing by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Precondition {
    /// `If-Match`: the current state is one of these.
    pub matches: Option<EntityTags>,
    /// `If-None-Match`: the current state is none of these.
    pub matches_none: Option<EntityTags>,
}

/// The states that a precondition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntityTags {
    /// Any, as long as there is one: `*`.
    Any,
    /// Those that these revisions made.
    Revisions(Vec<Revision>),
}

impl EntityTags {
    /// Whether the current state is among them; `None` is no state.
    pub fn contain(&self, current: Option<Revision>) -> bool {
        match self {
            Self::Any => current.is_some(),
            Self::Revisions(named) => current.is_some_and(|current| named.contains(&current)),
        }
    }
}

impl Precondition {
    /// Compares the current revision with what is required.
    ///
    /// # Errors
    /// [`Fault::RevisionMismatch`].
    pub fn check(&self, current: Option<Revision>) -> Result<(), Fault> {
        let matches = self.matches.as_ref().is_none_or(|tags| tags.contain(current));
        let excluded = self.matches_none.as_ref().is_some_and(|tags| tags.contain(current));
        if matches && !excluded { Ok(()) } else { Err(Fault::RevisionMismatch(current)) }
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision that last changed the subject.
    pub revision: Revision,
    /// Whether the write created it.
    pub created: bool,
}
