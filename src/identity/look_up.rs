//! Look-ups of what is not in memory: keys (what a look-up is charged to, and what is cached of its result), and which agent
//! and which tenant a slug names.
//!
//! Refusing an unknown agent takes as many look-ups as refusing a foreign one, so that response times do not disclose whether
//! an agent exists: a placeholder is cached for it.

use std::sync::Arc;

use uuid::Uuid;

use super::Identity;
use super::grant::{Grant, PresentedCredential};
use super::memory::{Directory, DirectoryVersion};
use crate::model::agent::{Access, AccessLimits, AgentAccess, TenantAddress};
use crate::model::audit::digest::Digest;
use crate::model::caller::{Payer, Recognition};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::key::{KeyHash, KeyKind};
use crate::model::system::FailPoint;
use crate::store::StoreError;
use crate::store::agents::AgentLookup;
use crate::store::key_lookup::KeyLookup;

/// The state of memory when a look-up starts.
struct LookUpStart {
    raises: u64,
    timeline: u64,
    directory: u64,
}

impl LookUpStart {
    fn of(identity: &Identity) -> Self {
        Self {
            raises: identity.scopes.raises(),
            timeline: identity.scopes.timeline(),
            directory: identity.memory.directory.timeline(),
        }
    }
}

impl Identity {
    /// What is known of a credential before it is verified.
    pub fn recognize(&self, presented: &PresentedCredential<'_>) -> Recognition {
        let recognized = match presented {
            PresentedCredential::None => false,
            PresentedCredential::Key(key, _) if key.kind() == KeyKind::Operator => false,
            PresentedCredential::Key(key, _) => {
                let hash = key.hash();
                if !self.is_issued(hash) {
                    let absent = self.memory.unknown_keys.contains(&hash);
                    return if absent { Recognition::Unverified } else { Recognition::NotIssued };
                }
                true
            }
            PresentedCredential::Token(token, _) => self.has_cached_token(token),
        };
        if recognized { Recognition::Recognized } else { Recognition::Unverified }
    }

    /// Whether this replica knows that a key was issued.
    fn is_issued(&self, hash: KeyHash) -> bool {
        self.memory.key_tenants.contains(&hash) || self.memory.issued.contains(hash)
    }

    /// Looks a key up, with the agent that `slug` names; returns its tenant, `None` for a key that does not exist.
    ///
    /// Look-ups of keys that are not known to be issued are bounded, and wait only for each other.
    pub(super) async fn look_up(
        &self,
        payer: Payer,
        hash: KeyHash,
        slug: Option<&str>,
    ) -> Result<Option<TenantId>, Fault> {
        if self.memory.unknown_keys.get(&hash).is_some() {
            return Ok(None);
        }
        let slug = slug.filter(|slug| Slug::is_slug(slug));
        let start = LookUpStart::of(self);
        let look_up = async || self.store.look_up_key(hash, slug).await;
        let found = if self.is_issued(hash) {
            self.loader.load(payer, look_up).await?
        } else {
            self.loader.load_within(self.look_up_limit.take()?, payer, look_up).await?
        };
        self.system.pause(FailPoint::CredentialFillRead).await;
        let tenant = found.as_ref().map(|found| found.credential.tenant);
        // A result from another timeline of the database is not cached.
        if self.scopes.timeline() == start.timeline {
            match found {
                Some(found) => self.keep_look_up(hash, slug, found, &start),
                None => self.memory.unknown_keys.insert(hash, (), None, 0),
            }
        }
        Ok(tenant)
    }

    /// Caches what was looked up. The cell of the tenant may be created only now: a scope that was raised since the look-up
    /// began may not have found its cell, so nothing is kept then, and each fact is loaded separately.
    fn keep_look_up(&self, hash: KeyHash, slug: Option<&str>, found: KeyLookup, start: &LookUpStart) {
        let KeyLookup { credential, tenant, gateway, agent } = found;
        self.memory.key_tenants.insert(hash, credential.tenant, Some(credential.tenant), 0);
        let own = self.memory.tenant(credential.tenant);
        if let Some(slug) = slug {
            self.keep_agent(slug, AgentLookup { gateway, agent }, start);
        }
        if self.scopes.raises() == start.raises {
            own.keep(tenant, own.timeline(), |facts| facts.keep_key(hash, &Grant::of_key(credential, hash)));
        }
    }

    /// Caches which agent a slug names, with its access settings, as [`keep_look_up`](Self::keep_look_up) does.
    fn keep_agent(&self, slug: &str, found: AgentLookup, start: &LookUpStart) {
        let AgentLookup { gateway, agent } = found;
        let Some((access, head)) = agent.or_else(|| absent(slug).map(|absent| (absent, gateway))) else {
            return;
        };
        let address = is_present(&access).then_some((access.tenant, access.agent));
        self.memory.directory.keep(gateway, start.directory, |facts| facts.keep_agent(slug, address));
        let cell = self.memory.tenant(access.tenant);
        if self.scopes.raises() == start.raises {
            cell.keep(head, cell.timeline(), |facts| facts.keep_agent(access));
        }
    }

    /// Looks up which agent a slug names, with its access settings, which are needed next.
    pub(super) async fn look_up_agent(&self, slug: &str) -> Result<Option<(TenantId, AgentId)>, StoreError> {
        let start = LookUpStart::of(self);
        let found = self.store.look_up_agent(slug).await?;
        self.system.pause(FailPoint::CacheFillRead).await;
        let address = found.agent.as_ref().map(|(access, _)| (access.tenant, access.agent));
        // A result from another timeline of the database is not cached.
        if self.scopes.timeline() == start.timeline {
            self.keep_agent(slug, found, &start);
        }
        Ok(address)
    }

    /// The grant of a key that is not in memory, or not at the newest known revision.
    pub(super) async fn load_grant(
        &self,
        payer: Payer,
        hash: KeyHash,
        slug: Option<&str>,
    ) -> Result<Arc<Grant>, Fault> {
        let known = self.memory.key_tenants.get(&hash);
        let cached =
            known.filter(|tenant| self.memory.tenant(*tenant).get_stale(|facts| facts.key(hash)).is_some());
        let tenant = match cached {
            // The cell is behind: its missed changes are fewer rows than what the look-up reads.
            Some(tenant) => tenant,
            None => self.look_up(payer, hash, slug).await?.ok_or(Fault::Unauthenticated)?,
        };
        self.find_grant(tenant, hash).await?.ok_or(Fault::Unauthenticated)
    }
}

impl Identity {
    /// The access settings of the agent that a slug names now.
    pub(super) async fn access_by_slug(
        &self,
        payer: Payer,
        slug: &str,
    ) -> Result<Option<AgentAccess>, Fault> {
        if let Some(address) = self.agent_address(payer, slug).await? {
            return self.agent_access(payer, address, None).await;
        }
        // A malformed slug discloses nothing: it can name no agent.
        if Slug::is_slug(slug)
            && let Some(absent) = absent(slug)
        {
            self.agent_access(payer, (NO_TENANT, absent.agent), Some(absent)).await?;
        }
        Ok(None)
    }

    /// Loads which agent a slug names, with its access settings, before they are requested.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`].
    pub async fn load_agent(&self, slug: &str) -> Result<(), Fault> {
        self.access_by_slug(Payer::Gateway, slug).await.map(drop)
    }

    /// The agent that a slug names now. A malformed slug is neither looked up nor cached.
    pub(super) async fn agent_address(
        &self,
        payer: Payer,
        slug: &str,
    ) -> Result<Option<(TenantId, AgentId)>, Fault> {
        if !Slug::is_slug(slug) {
            return Ok(None);
        }
        let load = async || self.look_up_agent(slug).await.map(Some);
        Ok(self.loader.find(payer, &self.memory.directory, |facts| facts.agent(slug), load).await?.flatten())
    }

    /// Looks up an agent that may be in memory. A malformed slug can name none.
    pub(super) async fn look_up_again(&self, payer: Payer, slug: &str) -> Result<(), Fault> {
        if Slug::is_slug(slug) {
            self.loader.load(payer, async || self.look_up_agent(slug).await).await?;
        }
        Ok(())
    }

    /// The tenant that a slug names now.
    pub(super) async fn tenant_address(
        &self,
        payer: Payer,
        slug: &Slug,
    ) -> Result<Option<TenantAddress>, Fault> {
        let directory = &self.memory.directory;
        let load = async || {
            let read = self.store.look_up_tenant(slug);
            let keep = |facts: &mut Directory, found: &_| facts.keep_tenant(slug.as_str(), *found);
            directory.load(&self.system, FailPoint::CacheFillRead, read, keep).await.map(Some)
        };
        Ok(self.loader.find(payer, directory, |facts| facts.tenant(slug.as_str()), load).await?.flatten())
    }

    /// The current version of the directory; `None` while nothing of it is cached.
    pub(super) async fn directory_version(&self, payer: Payer) -> Result<Option<DirectoryVersion>, Fault> {
        self.loader
            .find(payer, &self.memory.directory, |facts| Some(facts.version()), async || Ok(None))
            .await
    }
}

/// The tenant of placeholders.
pub(super) const NO_TENANT: TenantId = TenantId(Uuid::nil());

/// The placeholder that is cached for a slug that names no agent. It grants access to no caller.
pub(super) fn absent(slug: &str) -> Option<AgentAccess> {
    let id = *Digest::of(slug.as_bytes()).0.first_chunk::<16>()?;
    let agent = AgentId(Uuid::from_bytes(id));
    let limits = Arc::new(AccessLimits::unset(agent));
    Some(AgentAccess {
        agent,
        tenant: NO_TENANT,
        access: Access::Key,
        enabled: false,
        only_resources: false,
        limits,
    })
}

/// Whether these are the access settings of an agent, not a placeholder.
pub(super) fn is_present(access: &AgentAccess) -> bool {
    access.tenant != NO_TENANT
}
