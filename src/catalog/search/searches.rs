//! The indexes in memory, and the builds in progress.

use std::sync::Arc;

use bytes::Bytes;

use super::agent_index::AgentIndex;
use crate::cache::{FairSemaphore, MemoryBudget, WeighedCache};
use crate::catalog::SearchLimits;
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::ids::{AgentId, AgentRef};

/// The maximum number of builds, and of patches, that wait for others.
const MAX_WAITING: usize = 1_024;

/// The indexes of the agents that were searched last.
#[derive(Debug)]
pub(crate) struct Searches {
    indexes: Arc<WeighedCache<AgentId, Arc<AgentIndex>>>,
    /// The beginnings of texts, for the excerpts of results; immutable, as the contents are.
    pub(super) beginnings: Arc<WeighedCache<(AgentId, ContentHash), Bytes>>,
    /// The builds in progress.
    pub(super) builds: Arc<FairSemaphore<Payer>>,
    /// The patches in progress.
    pub(super) patches: Arc<FairSemaphore<Payer>>,
    pub(super) limits: SearchLimits,
}

impl Searches {
    /// Without any index, within `budget`.
    pub(crate) fn new(budget: &Arc<MemoryBudget>, limits: SearchLimits) -> Self {
        Self {
            indexes: WeighedCache::new(budget, "search", |index| Arc::strong_count(index) > 1),
            beginnings: WeighedCache::new(budget, "search_texts", |_| false),
            builds: FairSemaphore::new(limits.concurrent_builds, MAX_WAITING),
            patches: FairSemaphore::new(limits.concurrent_builds, MAX_WAITING),
            limits,
        }
    }

    /// The index of an agent.
    pub(super) fn of(&self, agent: AgentRef) -> Arc<AgentIndex> {
        let AgentRef { tenant, uid } = agent;
        self.indexes.get_or_create(uid, Some(tenant), |_, charge| Arc::new(AgentIndex::new(charge)))
    }
}
