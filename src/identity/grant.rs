//! Admission from memory: grants of verified credentials, the caller that a grant makes at an agent, and the last decision on a
//! key at an agent. [`access`](super::access) makes that decision; it is repeated while nothing that it depends on has changed
//! ([`access_version`](crate::cache::ScopeMap::access_version)).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hashbrown::Equivalent;
use smol_str::SmolStr;
use time::OffsetDateTime;

use super::Identity;
use super::tokens::VerifiedToken;
use crate::cache::CellHandle;
use crate::model::agent::{Access, AccessLimits, AgentAccess};
use crate::model::allocated::{allocated, behind_arc};
use crate::model::audit::event::{Actor, ActorKind};
use crate::model::caller::{Credential, CredentialKind, Payer, Reach};
use crate::model::client_address::{ClientAddress, Networks};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, AgentRef, TenantId};
use crate::model::key::{KeyHash, SecretKey};
use crate::model::label::CallerLabels;
use crate::model::limits::RateLimit;
use crate::quota::limits::CallerLimiters;

/// What a verified credential grants, how to verify it again, and when it was last used.
#[derive(Debug)]
#[repr(C)]
pub struct Grant {
    /// The minute of the last use of a key. What each request needs comes first: in the same cache lines of the processor as
    /// the first fields of the credential.
    used_minute: AtomicI64,
    /// The lower of the limits of the credential: computed once, since the audit event of each request has it.
    rate_limit: RateLimit,
    /// Whether the credential may be used from some networks only.
    has_networks: bool,
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
        let (rate_limit, has_networks) = (credential.limits.combined(), !credential.networks.is_empty());
        Arc::new(Self { used_minute: AtomicI64::new(0), rate_limit, has_networks, credential, proof })
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

    /// The networks from which the credential may be used; `None` if it may be used from any address, as
    /// most may.
    pub(super) fn networks(&self) -> Option<&Networks> {
        self.has_networks.then_some(&self.credential.networks)
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

    /// Loads the memory of what each request needs of it. Returns what was read for a `black_box`, without which the
    /// compiler would drop the loads.
    fn touch(&self) -> (i64, CredentialKind) {
        (self.used_minute.load(Ordering::Relaxed), self.credential.kind)
    }
}

impl From<&Grant> for Actor {
    fn from(grant: &Grant) -> Self {
        let credential = &grant.credential;
        Self {
            kind: match credential.kind {
                CredentialKind::AgentKey => ActorKind::Agent,
                CredentialKind::OwnerKey => ActorKind::Owner,
                CredentialKind::Token => ActorKind::Token,
            },
            principal: Some(credential.principal),
            key: Some(credential.key),
            limits: grant.rate_limit,
        }
    }
}

/// The caller of an agent's MCP endpoint. What refers to other memory that its requests use comes
/// first, in few lines of the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct Caller {
    /// What its credential grants; `None` without a credential, at a public agent.
    pub grant: Option<Arc<Grant>>,
    /// Where its requests find what they use; `None` if it is not cached.
    pub handles: Option<CallerHandles>,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// Whether the agent is public: readable without a credential.
    pub public: bool,
    /// Whether the agent never had definitions other than resources ([`AgentAccess::only_resources`]): a load reads no others.
    pub only_resources: bool,
    /// The limits of the agent and of its tenant.
    pub limits: Arc<AccessLimits>,
    /// Whether a quota is among these limits.
    pub has_quota: bool,
    /// Whether its credential reaches the agent. Otherwise the agent is public, and the caller is an anonymous one of it.
    pub is_own: bool,
}

/// What the requests of a cached caller use, and would look up: the first of them finds it.
#[derive(Debug)]
pub struct CallerHandles {
    /// The cell with the agent's snapshot.
    pub agent_cell: CellHandle,
    /// The limiters that the requests are charged to.
    pub limiters: CallerLimiters,
}

impl CallerHandles {
    /// The most memory that its weak references keep allocated after what they refer to is dropped.
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

/// A clone has no handles, whose memory is charged to the cached decision: its requests look up what they use.
impl Clone for Caller {
    fn clone(&self) -> Self {
        let Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, handles: _ } =
            self;
        let (grant, limits) = (grant.clone(), Arc::clone(limits));
        let (tenant, agent, public, only_resources) = (*tenant, *agent, *public, *only_resources);
        let (has_quota, is_own) = (*has_quota, *is_own);
        Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, handles: None }
    }
}

impl Caller {
    /// The caller at an agent that admits it, with its grant, or without one if it presented no credential.
    pub(super) fn new(grant: Option<Arc<Grant>>, access: AgentAccess) -> Self {
        let AgentAccess { agent, tenant, access, only_resources, limits, .. } = access;
        let is_own =
            credential_of(grant.as_ref()).is_some_and(|credential| credential.reaches(tenant, agent));
        let has_quota = limits.agent.has_quota() || limits.tenant.has_quota();
        let public = access == Access::Public;
        Self { grant, tenant, agent, public, only_resources, limits, has_quota, is_own, handles: None }
    }

    /// Whether it has to be decided on again, to find what its requests use.
    pub(super) fn is_outdated(&self) -> bool {
        self.handles.as_ref().is_some_and(CallerHandles::is_outdated)
    }

    /// Loads the memory of what its requests use, all of it at once: one after the other, the processor would wait for each.
    pub(super) fn touch(&self) {
        let known = self.handles.as_ref().map(|known| (known.agent_cell.touch(), known.limiters.touch()));
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

/// The key of a cached decision: a credential, presented to the endpoint of an agent. [`DecisionKeyRef`] has the same hash: the
/// same fields in the same order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DecisionKey {
    key: KeyHash,
    /// Most slugs are short: in the entry itself, not behind a pointer.
    slug: SmolStr,
}

/// A borrowed [`DecisionKey`].
#[derive(Debug, Hash)]
struct DecisionKeyRef<'a> {
    key: KeyHash,
    slug: &'a str,
}

impl Equivalent<DecisionKey> for DecisionKeyRef<'_> {
    fn equivalent(&self, subject: &DecisionKey) -> bool {
        self.key == subject.key && self.slug == subject.slug
    }
}

/// A decision that admits a key to an agent.
#[derive(Debug, Clone)]
pub(super) struct AccessDecision {
    /// The version of everything that decides about access: the decision holds while it is the same.
    version: u64,
    caller: Arc<Caller>,
}

impl Identity {
    /// The caller that a key makes at the endpoint of the agent `slug`, as decided last or from facts in memory; `None` if facts
    /// must be loaded, or the key is refused: then [`identify`](Self::identify) and [`admit`](Self::admit) decide. While the feed
    /// is unproven, waits for a sweep.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] for a key that is expired or not valid from this address;
    /// [`Fault::StorageUnavailable`] if memory is not trusted.
    pub async fn admit_from_memory(
        &self,
        (key, slug): (KeyHash, &str),
        client: ClientAddress,
    ) -> Result<Option<Arc<Caller>>, Fault> {
        let last = self.memory.decisions.get(&DecisionKeyRef { key, slug });
        if let Some(last) = &last {
            last.caller.touch();
        }
        if last.is_none() && !self.memory.key_tenants.contains(&key) {
            return Ok(None);
        }
        // The feed is nearly always proven: then no future is polled.
        if !self.feed_health.is_proven() {
            self.loader.confirm().await?;
        }
        // Read before the facts: a change meanwhile makes the decision void.
        let version = self.scopes.access_version();
        let holds = |last: &AccessDecision| last.version == version && !last.caller.is_outdated();
        let caller = match last.filter(holds) {
            Some(last) => last.caller,
            None => match self.caller_in_memory(key, slug).map(Arc::new) {
                Some(caller) => {
                    self.keep_decision((key, slug), AccessDecision { version, caller: Arc::clone(&caller) });
                    caller
                }
                None => return Ok(None),
            },
        };
        if let Some(grant) = &caller.grant {
            self.check_use(grant, client)?;
        }
        Ok(Some(caller))
    }

    fn keep_decision(&self, (key, slug): (KeyHash, &str), decision: AccessDecision) {
        let tenant = decision.caller.credential().map(|credential| credential.tenant);
        let slug = SmolStr::from(slug);
        let on_heap = if slug.is_heap_allocated() { behind_arc(slug.len()) } else { 0 };
        let heap = on_heap + behind_arc(size_of::<Caller>()) + CallerHandles::MOST_RETAINED;
        self.memory.decisions.insert(DecisionKey { key, slug }, decision, tenant, heap);
    }

    /// Checks the expiry and the networks of a known key, and records the use.
    pub(super) fn check_use(&self, grant: &Grant, client: ClientAddress) -> Result<(), Fault> {
        let now = self.check_expiry(grant)?;
        if grant.networks().is_some_and(|networks| !networks.allow(client)) {
            return Err(Fault::Unauthenticated);
        }
        if grant.note_use(now) {
            self.key_activity.note(grant.credential.key, now);
        }
        Ok(())
    }

    /// Checks that a grant has not expired; returns the time at which that was so.
    pub(super) fn check_expiry(&self, grant: &Grant) -> Result<OffsetDateTime, Fault> {
        let now = self.system.clock.now();
        let expired = grant.credential.expires_at.is_some_and(|end| end <= now);
        if expired { Err(Fault::Unauthenticated) } else { Ok(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::{DecisionKey, DecisionKeyRef, KeyHash};
    use crate::cache::{MemoryBudget, WeighedCache};

    #[test]
    fn decision_is_found_for_its_key_and_slug_only() {
        let decisions = WeighedCache::new(&MemoryBudget::new(1 << 20), "test", |_| false);
        decisions.insert(DecisionKey { key: KeyHash([1; 32]), slug: "a".into() }, "kept", None, 0);
        for (key, slug, found) in [(1, "a", Some("kept")), (1, "b", None), (2, "a", None)] {
            assert_eq!(
                decisions.get(&DecisionKeyRef { key: KeyHash([key; 32]), slug }),
                found,
                "{key} {slug}"
            );
        }
    }
}
