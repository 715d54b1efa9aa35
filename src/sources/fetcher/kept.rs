//! What is wanted, and content in memory: what identifies it, and how old it may be.

use std::sync::Arc;
use std::time::Duration;

use content_source::{Content, Location, Segment, Validator};
use tokio::time::Instant;

use crate::model::allocated::{allocated, behind_arc, shared_bytes, texts};
use crate::model::caller::Payer;
use crate::model::ids::{AgentId, ConnectionId, TenantId};
use crate::model::scope::Revision;
use crate::model::variant::Variant;
use crate::sources::memory::Connection;

/// How long it is known at most that a source has no such content.
const MISSING_FOR: Duration = Duration::from_secs(1);

/// What is read.
#[derive(Debug)]
pub struct ContentRequest {
    /// Who pays for looking up the connection, and within whose limits it is fetched.
    pub payer: Payer,
    /// The tenant that owns the definition.
    pub tenant: TenantId,
    /// The agent that has it.
    pub agent: AgentId,
    /// The revision that last changed the subject whose content it is: what is read after a change was fetched after it.
    pub revision: Revision,
    /// The connection.
    pub connection: ConnectionId,
    /// Where the content is.
    pub location: Arc<Location>,
    /// For how long content is answered without asking the source again; `None` for the default.
    pub ttl: Option<Duration>,
    /// For how much longer it is answered while it is revalidated or the source fails.
    pub stale: Duration,
    /// Which content of which URI it is, if the revision is that of a change of it: what was found then is stored.
    pub found: Option<Variant>,
}

/// Identifies the contents that were fetched at one time, in this process. Those that a source calls unchanged keep theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchId(pub u64);

/// Content from outside.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Which contents they are.
    pub id: FetchId,
    /// The contents: one for a file, several for a directory.
    pub contents: Arc<[Content]>,
    /// For how long it is answered from now on.
    pub left: Duration,
}

/// Identifies content in memory: another revision of the subject or of the connection is other content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) connection: ConnectionId,
    pub(super) connection_revision: Revision,
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    pub(super) revision: Revision,
    pub(super) location: Arc<Location>,
}

/// What a source answered.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) id: FetchId,
    /// `None` if it has no such content.
    pub(super) contents: Option<Arc<[Content]>>,
    pub(super) validator: Option<Validator>,
    /// When it was fetched or revalidated: the time at which that began.
    pub(super) checked: Instant,
    /// Whether that was before the fetch began, in the same round of polls.
    pub(super) is_of_round: bool,
}

/// How old content may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ages {
    pub(super) ttl: Duration,
    pub(super) stale: Duration,
}

impl Kept {
    /// The content for as long as it is fresh; `Some(None)` if it is known that there is none.
    pub(super) fn fresh(&self, ages: Ages) -> Option<Option<Outside>> {
        let age = self.checked.elapsed();
        let left = ages.ttl.saturating_sub(age);
        match &self.contents {
            Some(_) if !left.is_zero() => Some(self.content(left)),
            None if age < MISSING_FOR.min(ages.ttl) => Some(None),
            _ => None,
        }
    }

    /// The content if it may still be answered while it is revalidated.
    pub(super) fn stale(&self, ages: Ages) -> Option<Outside> {
        let is_stale = self.checked.elapsed() < ages.ttl.saturating_add(ages.stale);
        self.content(Duration::ZERO).filter(|_| is_stale)
    }

    pub(super) fn content(&self, left: Duration) -> Option<Outside> {
        Some(Outside { id: self.id, contents: Arc::clone(self.contents.as_ref()?), left })
    }

    pub(super) fn memory(&self) -> usize {
        let contents = self.contents.as_deref().unwrap_or_default();
        let of_each = contents.iter().map(|content| {
            let names = [&content.name, &content.mime_type].map(Option::as_deref);
            size_of::<Content>() + texts(names.into_iter().flatten()) + shared_bytes(&content.bytes)
        });
        let validator = self.validator.as_ref().map_or(0, |validator| allocated(validator.0.len()));
        behind_arc(size_of::<Self>()) + behind_arc(of_each.sum()) + validator
    }
}

impl Key {
    pub(super) fn new(connection: &Connection, wanted: &ContentRequest) -> Self {
        Self {
            connection: connection.uid,
            connection_revision: connection.revision,
            tenant: wanted.tenant,
            agent: wanted.agent,
            revision: wanted.revision,
            location: Arc::clone(&wanted.location),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let texts = match &*self.location {
            Location::Path { path, query, reference } => {
                let segments = path.segments.iter().map(Segment::as_str);
                let query = query.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
                texts(segments.chain(query).chain(reference.as_deref()))
            }
            Location::Statement { statement, parameters, .. } => {
                let parameters = parameters.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
                texts(parameters.chain([statement.as_str()]))
            }
        };
        behind_arc(size_of::<Location>()) + texts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Ages, FetchId, Kept};

    #[test]
    fn content_is_stale_until_both_of_its_ages_are_over() {
        let is_answered = |age: u64| {
            let checked = Instant::now().checked_sub(Duration::from_secs(age)).unwrap();
            let contents = Some(Arc::from([]));
            let kept = Kept { id: FetchId(1), contents, validator: None, checked, is_of_round: false };
            let ages = Ages { ttl: Duration::from_secs(10), stale: Duration::from_secs(20) };
            [kept.fresh(ages).is_some(), kept.stale(ages).is_some()]
        };
        assert_eq!(is_answered(9), [true, true]);
        assert_eq!([11, 29].map(is_answered), [[false, true]; 2]);
        assert_eq!(is_answered(31), [false, false]);
    }

    #[test]
    fn missing_content_is_known_for_a_second_or_as_long_as_content() {
        let is_known = |age: u64, ttl: u64| {
            let checked = Instant::now().checked_sub(Duration::from_millis(age)).unwrap();
            let (ttl, stale) = (Duration::from_millis(ttl), Duration::ZERO);
            let kept = Kept { id: FetchId(1), contents: None, validator: None, checked, is_of_round: false };
            kept.fresh(Ages { ttl, stale }).is_some()
        };
        assert!(is_known(0, 5_000) && is_known(0, 990));
        assert!(!is_known(1_500, 5_000) && !is_known(500, 400) && !is_known(0, 0));
    }
}
