//! Keys: made, shown once, listed, revoked, rotated.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Registry;
use super::fingerprint::difference;
use super::tenants::lock;
use crate::model::agent::KeyAge;
use crate::model::api_key::ApiKey;
use crate::model::caller::KeyScope;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
use crate::model::key::{KeyKind, SecretKey};
use crate::model::limits::RateLimit;
use crate::model::networks::Networks;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::keys::KeyEnd;
use crate::store::write::{Told, Write};

/// Active keys of one agent, and active owner keys of one tenant.
const MOST_ACTIVE: i64 = 10;
/// The same with those that have been replaced and are still good for a while: who has as many keys as there may be can
/// rotate each of them.
const MOST_ROTATING: i64 = 2 * MOST_ACTIVE;

/// A key as it is to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Whose.
    pub tenant: TenantId,
    /// The one agent it reaches; `None` for an owner key.
    pub agent: Option<AgentId>,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// From when on it is refused, if its tenant lets it become that old.
    pub expires_at: Option<OffsetDateTime>,
    /// From where it may be used.
    pub networks: Networks,
    /// How much it may use.
    pub limits: RateLimit,
}

/// A key that was just made, with its secret: the only time that there is one.
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// Its secret, to be shown once.
    pub secret: SecretKey,
}

impl Registry {
    /// A key by its identity.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn key(&self, key: KeyId) -> Result<ApiKey, Fault> {
        self.store.key(key).await?.ok_or(Fault::NotFound("key"))
    }

    /// The keys of an agent, or a tenant's owner keys, after one of them, oldest first.
    pub async fn keys(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<ApiKey>, Fault> {
        Ok(self.store.keys(tenant, agent, after, limit).await?)
    }

    /// Makes a key.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for an expiry that has passed or an eleventh active key; [`Fault::NotFound`].
    pub async fn create_key(self: &Arc<Self>, new: NewKey) -> Result<IssuedKey, Fault> {
        let registry = Arc::clone(self);
        self.detached(async move {
            let scope = Scope::from(new.tenant);
            registry
                .transact(scope, async |write| {
                    let revision = lock(write, scope).await?;
                    if let Some(agent) = new.agent
                        && !write.agent_lives(new.tenant, agent).await?
                    {
                        return Err(Fault::NotFound("agent"));
                    }
                    let principal = PrincipalId(registry.sources.uid()?);
                    registry.issue(write, new, principal, revision, MOST_ACTIVE, None).await
                })
                .await
        })
        .await
    }

    async fn issue(
        &self,
        write: &mut Write,
        new: NewKey,
        principal: PrincipalId,
        revision: Revision,
        most: i64,
        replaced: Option<&ApiKey>,
    ) -> Result<IssuedKey, Fault> {
        let now = self.sources.clock.now();
        if new.expires_at.is_some_and(|end| end <= now) {
            return Err(Fault::invalid_params("expiresAt has passed"));
        }
        if write.active_keys(new.tenant, new.agent, now).await? >= most {
            let full = format!("there are {most} active keys already; revoke one first");
            return Err(Fault::invalid_params(full));
        }
        let age = write.max_key_age(new.tenant).await?;
        let kind = if new.agent.is_some() { KeyKind::Agent } else { KeyKind::Owner };
        let secret = SecretKey::generate(kind, &mut self.sources.csprng()?);
        let key = ApiKey {
            uid: KeyId(self.sources.uid()?),
            tenant: new.tenant,
            agent: new.agent,
            display: secret.display().to_owned(),
            name: new.name,
            scopes: new.scopes,
            limits: new.limits,
            principal,
            revision,
            created_at: now,
            expires_at: KeyAge::cap(now, new.expires_at, age),
            asked_expiry: new.expires_at,
            networks: new.networks,
            revoked_at: None,
            last_used_at: None,
        };
        write.insert_key(&key, secret.hash()).await?;
        self.issued.insert(secret.hash());
        write.change(Scope::from(key.tenant), ChangeKind::Key, key.uid.to_string());
        write.tell(told(&key, revision, replaced, Some(&key)));
        Ok(IssuedKey { key, secret })
    }

    /// Sets how much a key may use.
    ///
    /// # Errors
    /// [`Fault::NotFound`], also for a key that is revoked.
    pub async fn limit_key(self: &Arc<Self>, key: &ApiKey, limits: RateLimit) -> Result<ApiKey, Fault> {
        let (registry, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.detached(async move {
            let scope = Scope::from(tenant);
            registry
                .transact(scope, async |write| {
                    let revision = lock(write, scope).await?;
                    let present = write.key(tenant, key).await?.filter(|key| key.revoked_at.is_none());
                    let mut present = present.ok_or(Fault::NotFound("key"))?;
                    if present.limits != limits {
                        let old = present.clone();
                        (present.limits, present.revision) = (limits, revision);
                        write.set_key_limits(&present).await?;
                        write.change(scope, ChangeKind::Key, key.to_string());
                        let after = Some(&present);
                        write.tell(Told { created: false, ..told(&present, revision, Some(&old), after) });
                    }
                    Ok(present)
                })
                .await
        })
        .await
    }

    /// Revokes a key; answers the revision that last changed it. Revoking it again changes nothing.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn revoke_key(self: &Arc<Self>, key: &ApiKey) -> Result<Revision, Fault> {
        let (registry, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.detached(async move {
            let scope = Scope::from(tenant);
            registry
                .transact(scope, async |write| {
                    let revision = lock(write, scope).await?;
                    let present = write.key(tenant, key).await?.ok_or(Fault::NotFound("key"))?;
                    if present.revoked_at.is_some() {
                        return Ok(present.revision);
                    }
                    let end = KeyEnd::Revoked(registry.sources.clock.now());
                    write.end_key(tenant, key, revision, end).await?;
                    write.change(scope, ChangeKind::Key, key.to_string());
                    write.tell(told(&present, revision, Some(&present), None));
                    Ok(revision)
                })
                .await
        })
        .await
    }

    /// Makes a key that replaces another, which is refused once the grace has passed. Both are one principal.
    ///
    /// # Errors
    /// [`Fault::NotFound`], also for a key that is revoked or expired; [`Fault::InvalidParams`].
    pub async fn rotate_key(self: &Arc<Self>, key: &ApiKey, grace: Duration) -> Result<IssuedKey, Fault> {
        let (registry, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.detached(async move {
            registry
                .transact(Scope::from(tenant), async |write| {
                    registry.replace(write, tenant, key, grace).await
                })
                .await
        })
        .await
    }

    async fn replace(
        &self,
        write: &mut Write,
        tenant: TenantId,
        key: KeyId,
        grace: Duration,
    ) -> Result<IssuedKey, Fault> {
        let scope = Scope::from(tenant);
        let revision = lock(write, scope).await?;
        let now = self.sources.clock.now();
        let active = |key: &ApiKey| key.revoked_at.is_none() && key.expires_at.is_none_or(|end| end > now);
        let old = write.key(tenant, key).await?.filter(active).ok_or(Fault::NotFound("key"))?;
        let end = if grace.is_zero() { KeyEnd::Revoked(now) } else { KeyEnd::Expires(now + grace) };
        write.end_key(tenant, key, revision, end).await?;
        write.change(scope, ChangeKind::Key, key.to_string());
        let new = NewKey {
            tenant,
            agent: old.agent,
            name: old.name.clone(),
            scopes: old.scopes.clone(),
            expires_at: old.asked_expiry,
            networks: old.networks.clone(),
            limits: old.limits,
        };
        self.issue(write, new, old.principal, revision, MOST_ROTATING, Some(&old)).await
    }
}

/// What a write tells the audit log that makes a key, replaces one by another, or ends one.
fn told(key: &ApiKey, revision: Revision, old: Option<&ApiKey>, new: Option<&ApiKey>) -> Told {
    Told {
        subject: key.uid.to_string(),
        revision,
        created: new.is_some(),
        tenant: Some(key.tenant),
        agent: key.agent,
        difference: difference(old, new),
    }
}
