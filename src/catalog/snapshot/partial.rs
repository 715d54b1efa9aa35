//! Partial snapshots: of an agent that is too large to be loaded for one call, what the call needs. They are not patched, but
//! loaded again after a change; once that has happened often enough, all of the agent is loaded.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::AgentSnapshot;
use crate::model::allocated::{allocated, behind_arc};
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;

/// The maximum number of partial snapshots of one agent.
pub(super) const MAX_SNAPSHOTS: usize = 64;
/// The number of loads after which all of the agent is loaded. They take the database about as long as a few thousand
/// definitions.
pub(super) const FIRST_LOADS: u32 = 64;
/// That number if the agent is then never kept, since it is too large for the cache: it doubles each time up to this one.
const MAX_LOADS: u32 = 1 << 16;

/// What a partial snapshot is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentPart {
    /// The description of the agent.
    Description,
    /// The definitions that may answer a URI, with the description. Of a mount, without the files that it lists.
    Uri(ResourceUri),
}

impl AgentPart {
    pub(super) fn uri(&self) -> Option<&ResourceUri> {
        match self {
            Self::Description => None,
            Self::Uri(uri) => Some(uri),
        }
    }
}

/// The partial snapshots of an agent, the oldest first.
#[derive(Debug)]
pub(super) struct PartialSnapshots {
    /// Held while all of the agent is loaded, for which reads of its parts do not wait.
    pub(super) loading_all: Arc<Mutex<()>>,
    snapshots: VecDeque<(AgentPart, Arc<AgentSnapshot>)>,
    loads: u32,
    most_loads: u32,
}

impl PartialSnapshots {
    pub(super) fn new() -> Self {
        Self { loading_all: Arc::default(), snapshots: VecDeque::new(), loads: 0, most_loads: FIRST_LOADS }
    }

    /// The snapshot of a part, at whichever revision.
    pub(super) fn get(&self, part: &AgentPart) -> Option<&Arc<AgentSnapshot>> {
        self.snapshots.iter().find(|(of, _)| of == part).map(|(_, snapshot)| snapshot)
    }

    /// The newest revision of all.
    pub(super) fn newest(&self) -> Option<Revision> {
        self.snapshots.iter().map(|(_, snapshot)| snapshot.revision).max()
    }

    /// Adds a snapshot that was loaded, in the place of an older one of its part, or of the one that was added first.
    pub(super) fn insert(&mut self, part: &AgentPart, snapshot: &Arc<AgentSnapshot>) {
        self.loads = self.loads.saturating_add(1);
        if self.get(part).is_some_and(|kept| kept.revision > snapshot.revision) {
            return;
        }
        self.snapshots.retain(|(of, _)| of != part);
        if self.snapshots.len() == MAX_SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.snapshots.push_back((part.clone(), Arc::clone(snapshot)));
    }

    /// Drops all snapshots.
    pub(super) fn clear(&mut self) {
        self.snapshots.clear();
    }

    /// Whether there have been so many loads that all of the agent is to be loaded. Counts from the beginning then.
    pub(super) fn take_due(&mut self) -> bool {
        let is_due = self.loads >= self.most_loads;
        if is_due {
            self.loads = 0;
            self.most_loads = self.most_loads.saturating_mul(2).min(MAX_LOADS);
        }
        is_due
    }

    /// The memory that they take.
    pub(super) fn memory(&self) -> usize {
        let uri = |part: &AgentPart| part.uri().map_or(0, |uri| behind_arc(uri.as_str().len()));
        let snapshots = self.snapshots.iter().map(|(of, snapshot)| uri(of) + snapshot.memory());
        let places = self.snapshots.capacity() * size_of::<(AgentPart, Arc<AgentSnapshot>)>();
        allocated(size_of::<Self>())
            + behind_arc(size_of::<Mutex<()>>())
            + allocated(places)
            + snapshots.sum::<usize>()
    }
}
