//! Access: from a credential and a slug to a caller, without a word to those who may not know.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use time::OffsetDateTime;

use super::Registry;
use super::cell::{Cell, Held, cell_of};
use crate::model::agent::{Access, AccessLimits, AgentAccess};
use crate::model::caller::{Credential, KeyScope};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::key::{KeyHash, KeyKind, SecretKey};
use crate::model::scope::{Change, ChangeKind, Scope};
use crate::model::sources::FailPoint;
use crate::store::StoreError;
use crate::tokens::VerifiedToken;

/// Facts remembered of one tenant until there are so many; then all are forgotten.
const MOST_FACTS: usize = 100_000;

/// A credential in memory, and when it was last used.
#[derive(Debug)]
pub struct Grant {
    /// What it grants.
    pub credential: Credential,
    proof: Proof,
    used_minute: AtomicI64,
}

/// By what it is found out whether a credential still holds.
#[derive(Debug)]
enum Proof {
    Key(KeyHash),
    Token(Arc<VerifiedToken>),
}

/// What a caller shows, of well-formed shape and nothing more.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    /// Nothing.
    Nobody,
    /// A key, with the slug of the agent whose endpoint is asked, if it is one.
    Key(&'a SecretKey, Option<&'a str>),
    /// An access token, to the endpoint of an agent; where none is named, to the gateway itself.
    Token(&'a str, Option<&'a str>),
}

/// Who may do what in one tenant. Part of the tenant's scope.
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

    /// Forgets an agent, and its keys, which end with it.
    fn forget_agent(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
        self.keys.retain(|_, grant| !grant.credential.ends_with(agent));
        self.hashes.retain(|_, hash| self.keys.contains_key(hash));
    }
}

impl Held for TenantAccess {
    fn forget(&mut self, change: &Change) {
        let uid = change.subject.parse().ok();
        match (change.kind, uid) {
            (ChangeKind::Key, Some(uid)) => {
                if let Some(hash) = self.hashes.remove(&KeyId(uid)) {
                    self.keys.remove(&hash);
                }
            }
            (ChangeKind::Agent, Some(uid)) => self.forget_agent(AgentId(uid)),
            _ => *self = Self::default(),
        }
    }
}

/// Who calls an agent's MCP endpoint.
#[derive(Debug, Clone)]
pub struct Caller {
    /// With what; `None` for anybody at a public agent.
    pub grant: Option<Arc<Grant>>,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// Whether everybody may read the agent.
    pub public: bool,
    /// How much may be used of the agent and of its tenant.
    pub limits: Arc<AccessLimits>,
}

impl Caller {
    /// Whose share of the work of all its requests are.
    pub(super) fn payer(&self) -> Payer {
        let own = credential_of(self.grant.as_ref()).is_some_and(|own| own.reaches(self.tenant, self.agent));
        if own { Payer::Tenant(self.tenant) } else { Payer::Strangers(self.tenant) }
    }
}

/// To whom work is accounted that is shared between tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A tenant, for itself and for callers with its credentials.
    Tenant(TenantId),
    /// All other callers of a tenant's public agents.
    Strangers(TenantId),
}

/// When keys were last used, until it is written down.
#[derive(Debug, Default)]
pub(super) struct KeyUses(DashMap<KeyId, OffsetDateTime>);

impl KeyUses {
    /// Keys noted between two writes; past it a use goes unnoted.
    const MOST: usize = 100_000;

    fn note(&self, key: KeyId, at: OffsetDateTime) {
        if self.0.len() < Self::MOST {
            self.0.insert(key, at);
        }
    }

    pub(super) fn take(&self) -> Vec<(KeyId, OffsetDateTime)> {
        let keys: Vec<_> = self.0.iter().map(|entry| *entry.key()).collect();
        keys.into_iter().filter_map(|key| self.0.remove(&key)).collect()
    }
}

impl Registry {
    /// What somebody at this address is granted now for what he shows; `None` for who shows nothing.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] for what is unknown, revoked, expired, made for somebody else or not to be used from
    /// there, all alike; [`Fault::StorageUnavailable`] and [`Fault::Unavailable`] where it cannot be found out.
    pub async fn identify(
        &self,
        shown: Shown<'_>,
        client: ClientAddress,
    ) -> Result<Option<Arc<Grant>>, Fault> {
        match shown {
            Shown::Nobody => self.confirm().await.map(|()| None),
            Shown::Key(key, agent) => {
                self.confirm().await?;
                self.grant(key, agent, client).await.map(Some)
            }
            Shown::Token(token, agent) => Box::pin(self.token_grant(token, agent)).await.map(Some),
        }
    }

    /// What a key grants now to somebody at this address. An operator's is not looked up here.
    async fn grant(
        &self,
        key: &SecretKey,
        agent: Option<&str>,
        client: ClientAddress,
    ) -> Result<Arc<Grant>, Fault> {
        if key.kind() == KeyKind::Operator {
            return Err(Fault::Unauthenticated);
        }
        let hash = key.hash();
        let tenant = self.key_tenants.get(&hash);
        let held = tenant.and_then(|tenant| self.tenant_cell(tenant).get(|held| held.key(hash)));
        let grant = match held {
            Some(grant) => grant,
            None => Box::pin(self.load_grant(hash, agent)).await?,
        };
        let now = self.check_expiry(&grant)?;
        if !grant.credential.networks.admit(client) {
            return Err(Fault::Unauthenticated);
        }
        let minute = now.unix_timestamp() / 60;
        if grant.used_minute.swap(minute, Ordering::Relaxed) != minute {
            self.uses.note(grant.credential.key, now);
        }
        Ok(grant)
    }

    /// The grant of a known key, unless it ended.
    async fn live_grant(&self, tenant: TenantId, hash: KeyHash) -> Result<Arc<Grant>, Fault> {
        let grant = self.find_grant(tenant, hash).await?.ok_or(Fault::Unauthenticated)?;
        self.check_expiry(&grant)?;
        Ok(grant)
    }

    /// The time now, at which a grant has not expired.
    fn check_expiry(&self, grant: &Grant) -> Result<OffsetDateTime, Fault> {
        let now = self.sources.clock.now();
        let expired = grant.credential.expires_at.is_some_and(|end| end <= now);
        if expired { Err(Fault::Unauthenticated) } else { Ok(now) }
    }

    /// Decides anew, long after it was admitted, whether a caller may go on. Answers what it is granted now.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn readmit(&self, caller: &Caller) -> Result<Option<Arc<Grant>>, Fault> {
        let grant = match &caller.grant {
            None => None,
            Some(grant) => Some(match &grant.proof {
                Proof::Key(hash) => self.live_grant(grant.credential.tenant, *hash).await?,
                Proof::Token(token) if self.stands(token) => Arc::clone(grant),
                Proof::Token(_) => return Err(Fault::Unauthenticated),
            }),
        };
        let access = self.agent_access((caller.tenant, caller.agent), None).await?;
        decide(credential_of(grant.as_ref()), access).map(|_| grant)
    }

    /// How long a caller's credential is good for, where it expires.
    pub fn expires_in(&self, caller: &Caller) -> Option<Duration> {
        let end = caller.grant.as_ref()?.credential.expires_at?;
        Some((end - self.sources.clock.now()).try_into().unwrap_or_default())
    }

    pub(super) async fn find_grant(
        &self,
        tenant: TenantId,
        hash: KeyHash,
    ) -> Result<Option<Arc<Grant>>, Fault> {
        let (cell, timeline) = (self.tenant_cell(tenant), self.timeline());
        self.find(
            &cell,
            |held| held.key(hash),
            async || {
                let found = cell
                    .load(
                        &self.store,
                        &self.sources,
                        FailPoint::CredentialFillRead,
                        async |view| {
                            Ok(view.credential(tenant, hash).await?.map(|found| Grant::of_key(found, hash)))
                        },
                        |held, grant| {
                            if let Some(grant) = grant {
                                held.keep_key(hash, grant);
                            }
                        },
                    )
                    .await?;
                if found.is_none() && self.timeline() == timeline {
                    // A revoked key never comes back.
                    self.key_tenants.remove(&hash);
                    self.unknown_keys.insert(hash, ());
                }
                Ok(found)
            },
        )
        .await
    }

    /// What decides over access to an agent; `absent` is held in its place where there is none.
    pub(super) async fn agent_access(
        &self,
        (tenant, agent): (TenantId, AgentId),
        absent: Option<AgentAccess>,
    ) -> Result<Option<AgentAccess>, Fault> {
        let cell = self.tenant_cell(tenant);
        self.find(
            &cell,
            |held| held.agent(agent),
            async || {
                cell.load(
                    &self.store,
                    &self.sources,
                    FailPoint::CacheFillRead,
                    async |view| view.agent_access(tenant, agent).await,
                    |held, access| {
                        if let Some(access) = access.clone().or(absent) {
                            held.keep_agent(access);
                        }
                    },
                )
                .await
            },
        )
        .await
    }

    pub(super) fn tenant_cell(&self, tenant: TenantId) -> Arc<Cell<TenantAccess>> {
        cell_of(&self.tenants, tenant, || Cell::new(Scope::from(tenant)))
    }

    /// A held fact; else, once the cell has caught up, a loaded one; else, while memory is trusted, an old one.
    pub(super) async fn find<H: Held, T>(
        &self,
        cell: &Cell<H>,
        held: impl Fn(&H) -> Option<T> + Clone,
        load: impl AsyncFnOnce() -> Result<Option<T>, StoreError> + Clone,
    ) -> Result<Option<T>, Fault> {
        if let Some(found) = cell.get(&held) {
            return Ok(Some(found));
        }
        if self.answers_from_memory()
            && let Some(stale) = cell.get_stale(&held)
        {
            return Ok(Some(stale));
        }
        match Box::pin(self.catch_up_and_load(cell, &held, load)).await {
            Ok(found) => Ok(found),
            Err(error) => match cell.get_stale(&held) {
                Some(stale) if self.is_left_to_memory().await => Ok(Some(stale)),
                _ => Err(error.into()),
            },
        }
    }

    async fn catch_up_and_load<H: Held, T>(
        &self,
        cell: &Cell<H>,
        held: impl FnOnce(&H) -> Option<T> + Clone,
        load: impl AsyncFnOnce() -> Result<Option<T>, StoreError> + Clone,
    ) -> Result<Option<T>, StoreError> {
        self.fill(async || {
            cell.catch_up(&self.store).await?;
            match cell.get(held) {
                Some(found) => Ok(Some(found)),
                None => load().await,
            }
        })
        .await
    }

    /// Decides whether whoever was [identified](Self::identify) may use the MCP endpoint of the agent called `slug`.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] for nobody, [`Fault::Forbidden`], [`Fault::InsufficientScope`], [`Fault::AgentDisabled`]; an
    /// unknown agent and one that is not the caller's are refused alike.
    pub async fn admit(&self, grant: Option<Arc<Grant>>, slug: &str) -> Result<Caller, Fault> {
        let access = self.access_by_slug(slug).await?;
        let AgentAccess { agent, tenant, access, limits, .. } =
            decide(credential_of(grant.as_ref()), access)?;
        Ok(Caller { grant, tenant, agent, public: access == Access::Public, limits })
    }
}

fn credential_of(grant: Option<&Arc<Grant>>) -> Option<&Credential> {
    grant.map(|grant| &grant.credential)
}

impl Grant {
    fn new(credential: Credential, proof: Proof) -> Arc<Self> {
        Arc::new(Self { credential, proof, used_minute: AtomicI64::new(0) })
    }

    /// What a key grants.
    pub(super) fn of_key(credential: Credential, hash: KeyHash) -> Arc<Self> {
        Self::new(credential, Proof::Key(hash))
    }

    /// What a token grants.
    pub(super) fn of_token(credential: Credential, token: Arc<VerifiedToken>) -> Arc<Self> {
        Self::new(credential, Proof::Token(token))
    }

    /// The token, if it is one's.
    pub(super) fn token(&self) -> Option<&Arc<VerifiedToken>> {
        match &self.proof {
            Proof::Token(token) => Some(token),
            Proof::Key(_) => None,
        }
    }
}

/// The rules of access, in one place: whether somebody, or nobody, may use an agent's endpoint.
pub(super) fn decide(
    credential: Option<&Credential>,
    access: Option<AgentAccess>,
) -> Result<AgentAccess, Fault> {
    let stranger = if credential.is_some() { Fault::Forbidden } else { Fault::Unauthenticated };
    let Some(access) = access else { return Err(stranger) };
    let public = access.access == Access::Public;
    match credential {
        Some(own) if own.reaches(access.tenant, access.agent) => {
            if !access.enabled {
                return Err(Fault::AgentDisabled);
            }
            if !public && !own.allows(KeyScope::Mcp) {
                return Err(Fault::InsufficientScope(KeyScope::Mcp.as_str()));
            }
        }
        _ if access.enabled && public => {}
        _ => return Err(stranger),
    }
    Ok(access)
}
