//! The access of one tenant in memory: its keys, and the access settings of its agents, which are part of the tenant's scope.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::grant::Grant;
use crate::cache::Invalidate;
use crate::model::agent::{AccessLimits, AgentAccess};
use crate::model::allocated::{behind_arc, table};
use crate::model::ids::{AgentId, KeyId};
use crate::model::key::KeyHash;
use crate::model::scope::{Change, ChangeKind};

/// The keys and agents of one tenant.
#[derive(Debug, Default)]
pub(super) struct TenantAccess {
    keys: HashMap<KeyHash, Arc<Grant>, RandomState>,
    hashes: HashMap<KeyId, KeyHash, RandomState>,
    agents: HashMap<AgentId, AgentAccess, RandomState>,
    /// The memory that the grants take.
    grants: usize,
}

impl TenantAccess {
    pub(super) fn keep_key(&mut self, hash: KeyHash, grant: &Arc<Grant>) {
        self.hashes.insert(grant.credential.key, hash);
        self.grants += grant.memory();
        let replaced = self.keys.insert(hash, Arc::clone(grant));
        self.grants -= replaced.map_or(0, |replaced| replaced.memory());
    }

    fn drop_key(&mut self, key: KeyId) {
        let dropped = self.hashes.remove(&key).and_then(|hash| self.keys.remove(&hash));
        self.grants -= dropped.map_or(0, |dropped| dropped.memory());
    }

    pub(super) fn key(&self, hash: KeyHash) -> Option<Arc<Grant>> {
        self.keys.get(&hash).cloned()
    }

    pub(super) fn agent(&self, agent: AgentId) -> Option<AgentAccess> {
        self.agents.get(&agent).cloned()
    }

    pub(super) fn keep_agent(&mut self, access: AgentAccess) {
        self.agents.insert(access.agent, access);
    }

    /// Drops an agent and its keys, which end with it.
    fn drop_agent(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
        self.keys.retain(|_, grant| !grant.credential.ends_with(agent));
        self.hashes.retain(|_, hash| self.keys.contains_key(hash));
        self.grants = self.keys.values().map(|grant| grant.memory()).sum();
    }
}

impl Invalidate for TenantAccess {
    fn invalidate(&mut self, change: &Change) {
        let uid = change.subject.parse().ok();
        match (change.kind, uid) {
            (ChangeKind::Key, Some(uid)) => self.drop_key(KeyId(uid)),
            (ChangeKind::Agent, Some(uid)) => self.drop_agent(AgentId(uid)),
            (ChangeKind::Hook, _) => {}
            _ => *self = Self::default(),
        }
    }

    fn heap(&self) -> usize {
        table::<(KeyHash, Arc<Grant>)>(self.keys.capacity())
            + table::<(KeyId, KeyHash)>(self.hashes.capacity())
            + table::<(AgentId, AgentAccess)>(self.agents.capacity())
            + self.agents.len() * behind_arc(size_of::<AccessLimits>())
            + self.grants
    }
}
