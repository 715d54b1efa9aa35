//! Partial snapshots: of an agent that is too large to be loaded for one call, what the call needs. They are not patched, but
//! loaded again after a change; once they have taken much work, all of the agent is loaded.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use foldhash::fast::FixedState;
use tokio::sync::{Mutex, MutexGuard};

use super::AgentSnapshot;
use crate::cache::Charge;
use crate::model::allocated::{allocated, behind_arc};
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;

/// The maximum number of partial snapshots of one agent.
const MAX_SNAPSHOTS: usize = 64;
/// The number of locks that loads of parts are spread over: those of one part run one at a time.
const LOCKS: usize = 8;
/// The work of a load, beside one for each definition that it reads, in units of the work of a use.
const LOAD: usize = 16;
/// The work after which all of the agent is loaded: 64 loads, or a thousand uses.
const FIRST_WORK: usize = 64 * LOAD;
/// That work if the agent is then not kept, since it is too large for the cache: it doubles each time up to this one.
const MAX_WORK: usize = FIRST_WORK << 10;

/// A part of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AgentPart {
    /// Its description.
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

/// The partial snapshots of an agent.
#[derive(Debug)]
pub(super) struct PartialSnapshots {
    kept: parking_lot::Mutex<Kept>,
    /// The newest revision at which the agent was read; 0 before the first.
    newest: AtomicI64,
    loading: [Mutex<()>; LOCKS],
    /// Held while all of the agent is loaded, for which reads of its parts do not wait.
    pub(super) loading_all: Mutex<()>,
    /// Whether a [`DueLoad`] is taken.
    is_due_taken: AtomicBool,
    charge: Charge,
}

/// A load of all of an agent that is due or in progress.
#[derive(Debug)]
pub struct DueLoad {
    partial: Arc<PartialSnapshots>,
    is_loaded: bool,
}

/// The snapshots that are kept, the one that was loaded first in front.
#[derive(Debug)]
struct Kept {
    snapshots: VecDeque<(AgentPart, Arc<AgentSnapshot>)>,
    work: usize,
    most_work: usize,
}

impl PartialSnapshots {
    /// None, charged to `charge`.
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            kept: parking_lot::Mutex::new(Kept {
                snapshots: VecDeque::new(),
                work: 0,
                most_work: FIRST_WORK,
            }),
            newest: AtomicI64::new(0),
            loading: Default::default(),
            loading_all: Mutex::default(),
            is_due_taken: AtomicBool::new(false),
            charge,
        }
    }

    /// The snapshot of a part, however old. Counts as a use.
    pub(super) fn get(&self, part: &AgentPart) -> Option<Arc<AgentSnapshot>> {
        let mut kept = self.kept.lock();
        let found =
            kept.snapshots.iter().find(|(of, _)| of == part).map(|(_, snapshot)| Arc::clone(snapshot));
        kept.work += usize::from(found.is_some());
        found
    }

    /// The newest revision at which the agent was read; `None` before the first.
    pub(super) fn newest(&self) -> Option<Revision> {
        Some(Revision(self.newest.load(Ordering::Acquire))).filter(|newest| *newest != Revision::default())
    }

    /// Waits until no other load of a part is in progress.
    pub(super) async fn lock(&self, part: &AgentPart) -> MutexGuard<'_, ()> {
        let hash = FixedState::default().hash_one(part);
        let number = usize::try_from(hash % LOCKS as u64).unwrap_or_default();
        self.loading[number].lock().await
    }

    /// Keeps a snapshot that was loaded, unless a newer one is known.
    pub(super) fn insert(&self, part: &AgentPart, snapshot: &Arc<AgentSnapshot>) {
        let is_newest = self.read_at(snapshot.revision) <= snapshot.revision;
        let mut kept = self.kept.lock();
        kept.work += LOAD + snapshot.definitions.len();
        // The revision of such content would change with each change of the agent, and it would be fetched again.
        if snapshot.definitions.answers_from_sources() {
            kept.work = kept.work.max(FIRST_WORK);
        }
        if !is_newest {
            return;
        }
        kept.snapshots.retain(|(of, _)| of != part);
        if kept.snapshots.len() == MAX_SNAPSHOTS {
            kept.snapshots.pop_front();
        }
        kept.snapshots.push_back((part.clone(), Arc::clone(snapshot)));
        // Under a lock that nothing takes which is evicted for it.
        if !self.charge.try_resize(kept.memory()) {
            kept.snapshots.clear();
        }
    }

    /// Records that the agent was read at a revision; returns the newest one before.
    pub(super) fn read_at(&self, revision: Revision) -> Revision {
        Revision(self.newest.fetch_max(revision.0, Ordering::AcqRel))
    }
}

impl DueLoad {
    /// The load, if there has been so much work that it is due, and it is not in progress.
    pub(super) fn take(partial: &Arc<PartialSnapshots>) -> Option<Self> {
        let is_due = {
            let kept = partial.kept.lock();
            kept.work >= kept.most_work && !partial.is_due_taken.swap(true, Ordering::AcqRel)
        };
        is_due.then(|| Self { partial: Arc::clone(partial), is_loaded: false })
    }

    /// Records that all of it was loaded. If it is not kept, the next load is due after twice the work.
    pub fn loaded(mut self) {
        self.is_loaded = true;
    }
}

impl Drop for DueLoad {
    fn drop(&mut self) {
        let mut kept = self.partial.kept.lock();
        kept.work = 0;
        if self.is_loaded {
            kept.most_work = kept.most_work.saturating_mul(2).min(MAX_WORK);
        }
        self.partial.is_due_taken.store(false, Ordering::Release);
    }
}

impl Kept {
    fn memory(&self) -> usize {
        let uri = |part: &AgentPart| part.uri().map_or(0, |uri| behind_arc(uri.as_str().len()));
        let snapshots = self.snapshots.iter().map(|(of, snapshot)| uri(of) + snapshot.memory());
        let places = self.snapshots.capacity() * size_of::<(AgentPart, Arc<AgentSnapshot>)>();
        behind_arc(size_of::<PartialSnapshots>()) + allocated(places) + snapshots.sum::<usize>()
    }
}
