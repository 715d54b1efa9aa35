//! Grants of verified credentials, the caller of an agent, and the cached access of one tenant: its keys and the access
//! settings of its agents, which are part of the tenant's scope.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use foldhash::fast::RandomState;
use time::OffsetDateTime;

use super::tokens::VerifiedToken;
use crate::cache::{CellHandle, Invalidate};
use crate::model::agent::{Access, AccessLimits, AgentAccess};
use crate::model::allocated::{allocated, behind_arc, table};
use crate::model::audit::event::Actor;
use crate::model::caller::{Credential, CredentialKind, Payer, Reach};
use crate::model::ids::{AgentId, AgentRef, KeyId, TenantId};
use crate::model::key::{KeyHash, SecretKey};
use crate::model::label::CallerLabels;
use crate::model::scope::{Change, ChangeKind};
use crate::quota::limits::CallerLimiters;

/// A credential in memory, and when it was last used.
#[derive(Debug)]
#[repr(C)]
pub struct Grant {
    /// Beside what each request needs of the credential.
    used_minute: AtomicI64,
    /// What it grants.
    pub credential: Credential,
    proof: CredentialProof,
}

/// What is checked again to decide whether a credential is still valid.
#[derive(Debug)]
pub(super) enum CredentialProof {
    Key(KeyHash),
    Token(Arc<VerifiedToken>),
}

/// The credential of a request: well-formed, not verified.
#[derive(Clone, Copy)]
pub enum PresentedCredential<'a> {
    /// No credential.
    None,
    /// A key, with the slug of the agent whose endpoint is called, if any.
    Key(&'a SecretKey, Option<&'a str>),
    /// An access token, presented to the endpoint of an agent, or without one to the gateway itself.
    Token(&'a str, Option<&'a str>),
}

impl Grant {
    fn new(credential: Credential, proof: CredentialProof) -> Arc<Self> {
        Arc::new(Self { credential, proof, used_minute: AtomicI64::new(0) })
    }

    /// What a key grants.
    pub(super) fn of_key(credential: Credential, hash: KeyHash) -> Arc<Self> {
        Self::new(credential, CredentialProof::Key(hash))
    }

    /// What a token grants.
    pub(super) fn of_token(credential: Credential, token: Arc<VerifiedToken>) -> Arc<Self> {
        Self::new(credential, CredentialProof::Token(token))
    }

    /// The memory that it takes behind an `Arc`, without its token, if any.
    pub(super) fn memory(&self) -> usize {
        let Credential { reach, networks, scopes, labels, .. } = &self.credential;
        let reached = if let Reach::Agents(agents) = reach { size_of_val(agents.as_slice()) } else { 0 };
        behind_arc(size_of::<Self>())
            + allocated(reached)
            + networks.heap()
            + labels.heap()
            + allocated(size_of_val(&**scopes))
    }

    pub(super) fn proof(&self) -> &CredentialProof {
        &self.proof
    }

    /// The token, if the credential is one.
    pub(super) fn token(&self) -> Option<&Arc<VerifiedToken>> {
        match &self.proof {
            CredentialProof::Token(token) => Some(token),
            CredentialProof::Key(_) => None,
        }
    }

    /// Records a use; returns true for the first one of its minute.
    pub(super) fn note_use(&self, now: OffsetDateTime) -> bool {
        let minute = now.unix_timestamp() / 60;
        // Written once a minute: a write takes the memory from the other threads that use the key.
        self.used_minute.load(Ordering::Relaxed) != minute
            && self.used_minute.swap(minute, Ordering::Relaxed) != minute
    }

    /// Loads the memory of what each request needs of it. Returns what was read, so that the compiler keeps the loads.
    fn touch(&self) -> (i64, CredentialKind) {
        (self.used_minute.load(Ordering::Relaxed), self.credential.kind)
    }
}

impl From<&Grant> for Actor {
    fn from(grant: &Grant) -> Self {
        let credential = &grant.credential;
        Self {
            kind: credential.kind.into(),
            principal: Some(credential.principal),
            key: Some(credential.key),
            limits: credential.limits.combined(),
        }
    }
}

/// The caller of an agent's MCP endpoint. What refers to other memory that its requests use comes
/// first, in few lines of the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct Caller {
    /// What its credential grants; `None` for an anonymous caller of a public agent.
    pub grant: Option<Arc<Grant>>,
    /// What its requests use, if it is remembered for further requests.
    pub remembered: Option<Remembered>,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// Whether the agent is public: readable without a credential.
    pub public: bool,
    /// [`AgentAccess::only_resources`].
    pub only_resources: bool,
    /// The limits of the agent and of its tenant.
    pub limits: Arc<AccessLimits>,
    /// Whether a quota is among these limits.
    pub has_quota: bool,
    /// Whether its credential belongs to the agent or the agent's tenant.
    pub is_own: bool,
}

/// What the requests of a caller use and would look up, remembered when it is found first.
#[derive(Debug)]
pub struct Remembered {
    /// The cell with the agent's snapshot.
    pub agent_cell: CellHandle,
    /// The limiters that the requests are charged to.
    pub limiters: CallerLimiters,
}

impl Remembered {
    /// The most memory of what has been dropped that it retains.
    pub(super) const MOST_RETAINED: usize =
        CallerLimiters::MOST_RETAINED + behind_arc(CellHandle::MOST_RETAINED);

    pub(super) fn new(agent: AgentId) -> Self {
        Self { agent_cell: CellHandle::new(agent), limiters: CallerLimiters::default() }
    }

    /// Whether something has been dropped: it is looked up for each request then, until the caller is decided on again.
    fn is_outdated(&self) -> bool {
        self.agent_cell.is_outdated() || self.limiters.is_outdated()
    }
}

/// The requests of a clone look up what they use.
impl Clone for Caller {
    fn clone(&self) -> Self {
        let Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, remembered: _ } =
            self;
        let (grant, limits) = (grant.clone(), Arc::clone(limits));
        let (tenant, agent, public, only_resources) = (*tenant, *agent, *public, *only_resources);
        let (has_quota, is_own) = (*has_quota, *is_own);
        Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, remembered: None }
    }
}

impl Caller {
    /// The caller that a grant makes, if any, at an agent that admits it.
    pub(super) fn new(grant: Option<Arc<Grant>>, access: AgentAccess) -> Self {
        let AgentAccess { agent, tenant, access, only_resources, limits, .. } = access;
        let is_own =
            credential_of(grant.as_ref()).is_some_and(|credential| credential.reaches(tenant, agent));
        let has_quota = limits.agent.has_quota() || limits.tenant.has_quota();
        let public = access == Access::Public;
        Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, remembered: None }
    }

    /// Whether it has to be decided on again, to find what its requests use.
    pub(super) fn is_outdated(&self) -> bool {
        self.remembered.as_ref().is_some_and(Remembered::is_outdated)
    }

    /// Loads the memory of what its requests use, all of it at once: one after the other, the processor would wait for each.
    pub(super) fn touch(&self) {
        let known = self.remembered.as_ref().map(|known| (known.agent_cell.touch(), known.limiters.touch()));
        std::hint::black_box((self.grant.as_deref().map(Grant::touch), known));
    }

    /// The agent with its tenant.
    pub fn agent_ref(&self) -> AgentRef {
        AgentRef { tenant: self.tenant, uid: self.agent }
    }

    /// Its credential, if it has one.
    pub fn credential(&self) -> Option<&Credential> {
        credential_of(self.grant.as_ref())
    }

    /// The labels by which it sees definitions of the agent: of its credential, if that reaches the agent.
    pub fn labels(&self) -> CallerLabels {
        self.credential().map(|credential| credential.labels_at(self.tenant, self.agent)).unwrap_or_default()
    }

    /// Whether it is answered what an anonymous caller is answered.
    pub fn is_answered_as_anonymous(&self) -> bool {
        self.public && self.labels().is_empty()
    }

    /// The account that the work of its requests is charged to.
    pub fn payer(&self) -> Payer {
        if self.is_own { Payer::Tenant(self.tenant) } else { Payer::Anonymous(self.tenant) }
    }
}

/// The credential of a grant, if any.
pub(super) fn credential_of(grant: Option<&Arc<Grant>>) -> Option<&Credential> {
    grant.map(|grant| &grant.credential)
}

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
