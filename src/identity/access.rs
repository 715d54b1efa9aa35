//! The access decision: from a credential and a slug to a caller. A refusal does not disclose whether the agent exists.
//! A decision that admits a key is cached with its caller ([`grant`](super::grant)).

use std::sync::Arc;
use std::time::Duration;

use super::Identity;
use super::grant::{Caller, CallerHandles, CredentialProof, Grant, PresentedCredential, credential_of};
use super::tenant_access::TenantAccess;
use crate::model::agent::{Access, AgentAccess};
use crate::model::caller::{Credential, KeyScope, Payer};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::key::{KeyHash, KeyKind, SecretKey};
use crate::model::system::FailPoint;

impl Identity {
    /// Verifies the credential of a request from `client` and returns what it grants now; `None` without a credential.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`], always the same, for a credential that is unknown, revoked, expired, for another
    /// audience, or not valid from this address; [`Fault::StorageUnavailable`] and [`Fault::Unavailable`] if it cannot
    /// be verified.
    pub async fn identify(
        &self,
        presented: PresentedCredential<'_>,
        client: ClientAddress,
    ) -> Result<Option<Arc<Grant>>, Fault> {
        match presented {
            PresentedCredential::None => self.loader.confirm().await.map(|()| None),
            PresentedCredential::Key(key, agent) => {
                self.loader.confirm().await?;
                self.grant(key, agent, client).await.map(Some)
            }
            PresentedCredential::Token(token, agent) => {
                Box::pin(self.token_grant(token, agent, client.into())).await.map(Some)
            }
        }
    }

    /// What a key grants now from this address. Operator keys are verified elsewhere.
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
        let tenant = self.memory.key_tenants.get(&hash);
        let cached = tenant.and_then(|tenant| self.memory.tenant(tenant).get(|facts| facts.key(hash)));
        let grant = match cached {
            Some(grant) => grant,
            None => Box::pin(self.load_grant(client.into(), hash, agent)).await?,
        };
        self.check_use(&grant, client)?;
        Ok(grant)
    }

    /// The grant of a known key, unless it ended.
    async fn live_grant(&self, tenant: TenantId, hash: KeyHash) -> Result<Arc<Grant>, Fault> {
        let grant = self.find_grant(tenant, hash).await?.ok_or(Fault::Unauthenticated)?;
        self.check_expiry(&grant)?;
        Ok(grant)
    }

    /// Decides again, after a caller was admitted, whether it may continue; returns what it is granted now. Open streams ask
    /// after each change of the access that they rest on (`Hub::raise` of the feed): a revoked key is refused here.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub async fn readmit(&self, caller: &Caller) -> Result<Option<Arc<Grant>>, Fault> {
        let grant = match &caller.grant {
            None => None,
            Some(grant) => Some(self.current_grant(grant).await?),
        };
        let access = self.agent_access(caller.payer(), (caller.tenant, caller.agent), None).await?;
        decide(credential_of(grant.as_ref()), access).map(|_| grant)
    }

    /// What a verified credential grants now.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] if it was revoked or expired; [`Fault::StorageUnavailable`] and [`Fault::Unavailable`] if
    /// that cannot be found out.
    pub async fn current_grant(&self, grant: &Arc<Grant>) -> Result<Arc<Grant>, Fault> {
        match grant.proof() {
            CredentialProof::Key(hash) => self.live_grant(grant.credential.tenant, *hash).await,
            CredentialProof::Token(token) if self.is_valid(token) => Ok(Arc::clone(grant)),
            CredentialProof::Token(_) => Err(Fault::Unauthenticated),
        }
    }

    /// The remaining validity of a caller's credential, if it expires.
    pub fn expires_in(&self, caller: &Caller) -> Option<Duration> {
        let end = caller.grant.as_ref()?.credential.expires_at?;
        Some((end - self.system.clock.now()).try_into().unwrap_or_default())
    }

    pub(super) async fn find_grant(
        &self,
        tenant: TenantId,
        hash: KeyHash,
    ) -> Result<Option<Arc<Grant>>, Fault> {
        let (cell, timeline) = (self.memory.tenant(tenant), self.scopes.timeline());
        self.loader
            .find(
                Payer::Tenant(tenant),
                &cell,
                |facts| facts.key(hash),
                async || {
                    let read = async {
                        let (revision, found) = self.store.credential(tenant, hash).await?.unzip();
                        Ok((revision, found.map(|found| Grant::of_key(found, hash))))
                    };
                    let keep = |facts: &mut TenantAccess, grant: &Option<_>| {
                        if let Some(grant) = grant {
                            facts.keep_key(hash, grant);
                        }
                    };
                    let found = cell.load(&self.system, FailPoint::CredentialFillRead, read, keep).await?;
                    if found.is_none() && self.scopes.timeline() == timeline {
                        // A revoked key never becomes valid again.
                        self.memory.key_tenants.remove(&hash);
                        self.memory.unknown_keys.insert(hash, (), None, 0);
                    }
                    Ok(found)
                },
            )
            .await
    }

    /// The access settings of an agent; `absent` is cached in their place if there is no such agent.
    pub(super) async fn agent_access(
        &self,
        payer: Payer,
        (tenant, agent): (TenantId, AgentId),
        absent: Option<AgentAccess>,
    ) -> Result<Option<AgentAccess>, Fault> {
        let cell = self.memory.tenant(tenant);
        let load = async || {
            let read = self.store.agent_access(tenant, agent);
            let keep = |facts: &mut TenantAccess, access: &Option<AgentAccess>| {
                if let Some(access) = access.clone().or(absent) {
                    facts.keep_agent(access);
                }
            };
            cell.load(&self.system, FailPoint::CacheFillRead, read, keep).await
        };
        self.loader.find(payer, &cell, |facts| facts.agent(agent), load).await
    }

    /// Decides whether an [identified](Self::identify) caller from `client` may use the MCP endpoint of the agent `slug`.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] without a credential, [`Fault::Forbidden`], [`Fault::InsufficientScope`],
    /// [`Fault::AgentDisabled`]; the same for an unknown agent and one that the credential does not reach, for which it is
    /// [`Fault::StorageUnavailable`] if the database cannot be asked.
    pub async fn admit(
        &self,
        grant: Option<Arc<Grant>>,
        client: ClientAddress,
        slug: &str,
    ) -> Result<Caller, Fault> {
        let credential = credential_of(grant.as_ref());
        let payer = credential.map_or_else(|| client.into(), |own| Payer::Tenant(own.tenant));
        let access = self.access_by_slug(payer, slug).await?;
        let decided = decide(credential, access);
        if matches!(decided, Err(Fault::Forbidden | Fault::Unauthenticated)) && self.loader.is_unreachable() {
            // An agent that is not in memory is looked up before the refusal, which may fail: so is one in memory, so that
            // neither the answer nor its time tells them apart.
            self.look_up_again(payer, slug).await?;
        }
        Ok(Caller::new(grant, decided?))
    }

    /// The caller, if all facts that the decision rests on are in memory and current. A fact that may be about to change is
    /// in no cell, so that no decision on it is remembered.
    pub(super) fn caller_in_memory(&self, key: KeyHash, slug: &str) -> Option<Caller> {
        let tenant = self.memory.key_tenants.get(&key)?;
        let grant = self.memory.tenant(tenant).get(|facts| facts.key(key))?;
        let (owner, agent) = self.memory.directory.get(|facts| facts.agent(slug))??;
        let access = self.memory.tenant(owner).get(|facts| facts.agent(agent))?;
        let grant = Some(grant);
        let access = decide(credential_of(grant.as_ref()), Some(access)).ok()?;
        let handles = Some(CallerHandles::new(access.agent));
        Some(Caller { handles, ..Caller::new(grant, access) })
    }
}

/// The access decision: whether a credential, or an anonymous caller, may use the endpoint of an agent.
pub(super) fn decide(
    credential: Option<&Credential>,
    access: Option<AgentAccess>,
) -> Result<AgentAccess, Fault> {
    let refusal = if credential.is_some() { Fault::Forbidden } else { Fault::Unauthenticated };
    let Some(access) = access else { return Err(refusal) };
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
        _ => return Err(refusal),
    }
    Ok(access)
}
