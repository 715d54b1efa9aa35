//! The access facts of one tenant: its keys, and who may reach its agents. Part of the tenant's scope.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::grant::Grant;
use crate::cache::Invalidate;
use crate::model::agent::AgentAccess;
use crate::model::ids::{AgentId, KeyId};
use crate::model::key::KeyHash;
use crate::model::scope::{Change, ChangeKind};

/// The maximum number of cached facts of one tenant; above it all are dropped.
const MOST_FACTS: usize = 100_000;

/// The keys and agents of one tenant.
#[derive(Debug, Default)]
pub(super) struct TenantAccess {
    keys: HashMap<KeyHash, Arc<Grant>, RandomState>,
    hashes: HashMap<KeyId, KeyHash, RandomState>,
    agents: HashMap<AgentId, AgentAccess, RandomState>,
}

impl TenantAccess {
    pub(super) fn keep_key(&mut self, hash: KeyHash, grant: &Arc<Grant>) {
        if self.keys.len() >= MOST_FACTS {
            *self = Self::default();
        }
        self.hashes.insert(grant.credential.key, hash);
        self.keys.insert(hash, Arc::clone(grant));
    }

    pub(super) fn key(&self, hash: KeyHash) -> Option<Arc<Grant>> {
        self.keys.get(&hash).cloned()
    }

    pub(super) fn agent(&self, agent: AgentId) -> Option<AgentAccess> {
        self.agents.get(&agent).cloned()
    }

    pub(super) fn keep_agent(&mut self, access: AgentAccess) {
        if self.agents.len() >= MOST_FACTS {
            *self = Self::default();
        }
        self.agents.insert(access.agent, access);
    }

    /// Drops an agent and its keys, which end with it.
    fn drop_agent(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
        self.keys.retain(|_, grant| !grant.credential.ends_with(agent));
        self.hashes.retain(|_, hash| self.keys.contains_key(hash));
    }
}

impl Invalidate for TenantAccess {
    fn invalidate(&mut self, change: &Change) {
        let uid = change.subject.parse().ok();
        match (change.kind, uid) {
            (ChangeKind::Key, Some(uid)) => {
                if let Some(hash) = self.hashes.remove(&KeyId(uid)) {
                    self.keys.remove(&hash);
                }
            }
            (ChangeKind::Agent, Some(uid)) => self.drop_agent(AgentId(uid)),
            _ => *self = Self::default(),
        }
    }
}
