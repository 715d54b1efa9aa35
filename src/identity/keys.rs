//! API keys: create, list, limit, revoke, and key rotation with a grace period. A secret is returned once.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::Identity;
use super::tenants::lock;
use crate::model::agent::KeyAge;
use crate::model::audit::fingerprint::difference;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::KeyScope;
use crate::model::client_address::Networks;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
use crate::model::key::{ApiKey, KeyKind, SecretKey};
use crate::model::key_bounds::{KeyBounds, Maker};
use crate::model::label::Labels;
use crate::model::limits::{KeyLimits, RateLimit};
use crate::model::precondition::Precondition;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::keys::KeyEnd;
use crate::store::write::{Write, WriteSummary};

/// The maximum number of keys that one revision names individually.
const MAX_ANNOUNCED: usize = 1_000;

/// A key to be created; the bounds of its creator supply omitted members.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its tenant.
    pub tenant: TenantId,
    /// The one agent it reaches; `None` for an owner key.
    pub agent: Option<AgentId>,
    /// Its name.
    pub name: String,
    /// Its scopes; by default `mcp` for an agent key, and all for an owner key.
    pub scopes: Option<Vec<KeyScope>>,
    /// When it expires.
    pub expires_at: Option<OffsetDateTime>,
    /// Its labels.
    pub labels: Labels,
    /// The networks that it may be used from.
    pub networks: Option<Networks>,
    /// Its rate limit.
    pub limits: Option<RateLimit>,
}

/// A change of a key; omitted members stay as they are.
#[derive(Debug, Clone)]
pub struct KeyChange {
    /// Its limits: the operator's part or the owner's, depending on the maker; `Some(None)` removes that part.
    pub limits: Option<Option<RateLimit>>,
    /// Its labels.
    pub labels: Option<Labels>,
}

/// A key as it is made.
struct KeyTerms {
    tenant: TenantId,
    agent: Option<AgentId>,
    name: String,
    scopes: Vec<KeyScope>,
    labels: Labels,
    expires_at: Option<OffsetDateTime>,
    networks: Networks,
    limits: KeyLimits,
    principal: PrincipalId,
    maker: Option<PrincipalId>,
}

/// A key that was just created, with its secret, which is not stored.
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// Its secret, to be shown once.
    pub secret: SecretKey,
}

impl Identity {
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

    /// Creates a key within the bounds of the key that creates it.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for an expiry in the past or beyond the tenant's maximum age, or an active key
    /// above [`IdentityLimits::active_keys`](super::IdentityLimits::active_keys); [`Fault::NotFound`]; those of [`KeyBounds`]; [`Fault::Unauthenticated`] if the creator was revoked
    /// meanwhile.
    pub async fn create_key(
        self: &Arc<Self>,
        new: NewKey,
        maker: Maker,
        audited: AuditedWrite,
    ) -> Result<IssuedKey, Fault> {
        let identity = Arc::clone(self);
        self.writer
            .detached(async move {
                let scope = Scope::from(new.tenant);
                identity
                    .writer
                    .transact(scope, &audited, async |write| {
                        let revision = lock(write, scope).await?;
                        if let Some(agent) = new.agent
                            && !write.agent_exists(new.tenant, agent).await?
                        {
                            return Err(Fault::NO_AGENT);
                        }
                        let bounds = identity.bounds(write, new.tenant, maker).await?;
                        identity.check_age(write, &new).await?;
                        let terms = identity.terms(new, &bounds)?;
                        let most = identity.limits.active_keys.into();
                        identity.issue(write, terms, revision, most, None).await
                    })
                    .await
            })
            .await
    }

    /// The bounds of the keys that a caller creates or changes, as of this transaction, which has locked the tenant: a
    /// key that was revoked before creates none.
    async fn bounds(&self, write: &mut Write, tenant: TenantId, maker: Maker) -> Result<KeyBounds, Fault> {
        let maker = match maker {
            Maker::Operator => None,
            Maker::Key(key) => {
                let now = self.system.clock.now();
                let active = write.key(tenant, key).await?.filter(|key| key.is_active(now));
                Some(active.ok_or(Fault::Unauthenticated)?)
            }
        };
        Ok(KeyBounds::new(maker, self.limits.key_rate))
    }

    /// Checks that the requested expiry is within the maximum age of the tenant's keys.
    async fn check_age(&self, write: &mut Write, new: &NewKey) -> Result<(), Fault> {
        let (Some(end), Some(age)) = (new.expires_at, write.max_key_age(new.tenant).await?) else {
            return Ok(());
        };
        let latest = KeyAge::cap(self.system.clock.now(), None, Some(age)).filter(|latest| end > *latest);
        latest.map_or(Ok(()), |latest| {
            let (days, latest) = (age.days(), latest.format(&Rfc3339).unwrap_or_default());
            Err(Fault::invalid_params(format!(
                "expiresAt must be at most {latest}: keys of this tenant live for {days} days at most"
            )))
        })
    }

    fn terms(&self, new: NewKey, bounds: &KeyBounds) -> Result<KeyTerms, Fault> {
        let default: &[_] = match new.agent {
            Some(_) => &[KeyScope::Mcp],
            None => &[KeyScope::Mcp, KeyScope::Registry, KeyScope::Audit],
        };
        Ok(KeyTerms {
            tenant: new.tenant,
            agent: new.agent,
            name: new.name,
            scopes: bounds.scopes(new.scopes, default)?,
            labels: checked_labels(new.agent, new.labels)?,
            networks: bounds.networks(new.networks)?,
            expires_at: bounds.expiry(new.expires_at)?,
            limits: bounds.limits(new.limits)?,
            principal: PrincipalId(self.system.uid()?),
            maker: bounds.principal(),
        })
    }

    async fn issue(
        &self,
        write: &mut Write,
        terms: KeyTerms,
        revision: Revision,
        most: i64,
        replaced: Option<&ApiKey>,
    ) -> Result<IssuedKey, Fault> {
        let now = self.system.clock.now();
        if terms.expires_at.is_some_and(|end| end <= now) {
            return Err(Fault::invalid_params("expiresAt is in the past"));
        }
        if write.active_keys(terms.tenant, terms.agent, now).await? >= most {
            let full = format!("there are {most} active keys, the most allowed; revoke one first");
            return Err(Fault::invalid_params(full));
        }
        let age = write.max_key_age(terms.tenant).await?;
        let kind = if terms.agent.is_some() { KeyKind::Agent } else { KeyKind::Owner };
        let secret = SecretKey::generate(kind, &mut self.system.csprng()?);
        let key = ApiKey {
            uid: KeyId(self.system.uid()?),
            tenant: terms.tenant,
            agent: terms.agent,
            display: secret.display().to_owned(),
            name: terms.name,
            scopes: terms.scopes,
            labels: terms.labels,
            limits: terms.limits,
            principal: terms.principal,
            maker: terms.maker,
            revision,
            created_at: now,
            expires_at: KeyAge::cap(now, terms.expires_at, age),
            asked_expiry: terms.expires_at,
            networks: terms.networks,
            revoked_at: None,
            last_used_at: None,
        };
        write.insert_key(&key, secret.hash()).await?;
        self.memory.issued.insert(secret.hash());
        write.change(Scope::from(key.tenant), ChangeKind::Key, key.uid.to_string());
        // A rotation creates a key, though its summary compares it with the key that it replaces.
        write.set_summary(WriteSummary { created: true, ..summary(&key, revision, replaced, Some(&key)) });
        Ok(IssuedKey { key, secret })
    }

    /// Changes the limits and the labels of a key.
    ///
    /// # Errors
    /// [`Fault::NotFound`], also for a revoked key; [`Fault::RevisionMismatch`]; [`Fault::InvalidParams`] for labels of an
    /// owner key; those of [`KeyBounds::changed_limits`].
    pub async fn update_key(
        self: &Arc<Self>,
        key: &ApiKey,
        change: KeyChange,
        maker: Maker,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<ApiKey, Fault> {
        let (identity, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.writer
            .detached(async move {
                let scope = Scope::from(tenant);
                identity
                    .writer
                    .transact(scope, &audited, async |write| {
                        let revision = lock(write, scope).await?;
                        let present = write.key(tenant, key).await?.filter(|key| key.revoked_at.is_none());
                        let present = present.ok_or(Fault::NotFound("key"))?;
                        condition.check(Some(present.revision))?;
                        let bounds = identity.bounds(write, tenant, maker).await?;
                        let changed = change.apply(&present, &bounds)?;
                        if changed == present {
                            return Ok(present);
                        }
                        let changed = ApiKey { revision, ..changed };
                        write.update_key(&changed).await?;
                        write.change(scope, ChangeKind::Key, key.to_string());
                        write.set_summary(summary(&changed, revision, Some(&present), Some(&changed)));
                        Ok(changed)
                    })
                    .await
            })
            .await
    }

    /// Revokes a key; with `descendants`, also the keys that its principal created, and those that these created.
    /// Returns the revision that last changed the key. Revoking a revoked key changes nothing.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn revoke_key(
        self: &Arc<Self>,
        key: &ApiKey,
        descendants: bool,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Revision, Fault> {
        let (identity, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.writer
            .detached(async move {
                let scope = Scope::from(tenant);
                identity
                    .writer
                    .transact(scope, &audited, async |write| {
                        let revision = lock(write, scope).await?;
                        let present = write.key(tenant, key).await?.ok_or(Fault::NotFound("key"))?;
                        condition.check(Some(present.revision))?;
                        let now = identity.system.clock.now();
                        let mut ended = present.revision;
                        if present.revoked_at.is_none() {
                            write.end_key(tenant, key, revision, KeyEnd::Revoked(now)).await?;
                            write.change(scope, ChangeKind::Key, key.to_string());
                            ended = revision;
                        }
                        if descendants {
                            let revoked =
                                write.revoke_keys_made_by(tenant, present.principal, revision, now).await?;
                            announce(write, tenant, &revoked);
                        }
                        write.set_summary(summary(&present, revision, Some(&present), None));
                        Ok(ended)
                    })
                    .await
            })
            .await
    }

    /// Creates a key that replaces another, which is refused after the grace period. Both have the same principal.
    ///
    /// # Errors
    /// [`Fault::NotFound`], also for a revoked key; [`Fault::KeyExpired`]; [`Fault::InvalidParams`];
    /// [`Fault::RevisionMismatch`]; those of [`KeyBounds::successor`].
    pub async fn rotate_key(
        self: &Arc<Self>,
        key: &ApiKey,
        grace: Duration,
        maker: Maker,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<IssuedKey, Fault> {
        let (identity, tenant, key) = (Arc::clone(self), key.tenant, key.uid);
        self.writer
            .detached(async move {
                let scope = Scope::from(tenant);
                identity
                    .writer
                    .transact(scope, &audited, async |write| {
                        let revision = lock(write, scope).await?;
                        let now = identity.system.clock.now();
                        let old = write.key(tenant, key).await?.filter(|key| key.revoked_at.is_none());
                        let old = old.ok_or(Fault::NotFound("key"))?;
                        if let Some(end) = old.expires_at.filter(|end| *end <= now) {
                            return Err(Fault::KeyExpired(end.format(&Rfc3339).unwrap_or_default()));
                        }
                        condition.check(Some(old.revision))?;
                        let bounds = identity.bounds(write, tenant, maker).await?;
                        identity.replace(write, old, grace, &bounds, revision).await
                    })
                    .await
            })
            .await
    }

    async fn replace(
        &self,
        write: &mut Write,
        old: ApiKey,
        grace: Duration,
        bounds: &KeyBounds,
        revision: Revision,
    ) -> Result<IssuedKey, Fault> {
        let (expires_at, limits) = bounds.successor(&old)?;
        let now = self.system.clock.now();
        let end = if grace.is_zero() { KeyEnd::Revoked(now) } else { KeyEnd::Expires(now + grace) };
        write.end_key(old.tenant, old.uid, revision, end).await?;
        write.change(Scope::from(old.tenant), ChangeKind::Key, old.uid.to_string());
        let terms = KeyTerms {
            tenant: old.tenant,
            agent: old.agent,
            name: old.name.clone(),
            scopes: old.scopes.clone(),
            labels: old.labels.clone(),
            expires_at,
            networks: old.networks.clone(),
            limits,
            principal: old.principal,
            maker: bounds.principal(),
        };
        // Those in their grace period included, so that each of the active ones can be rotated.
        let most = 2 * i64::from(self.limits.active_keys);
        self.issue(write, terms, revision, most, Some(&old)).await
    }
}

impl KeyChange {
    /// The key after the change.
    fn apply(self, present: &ApiKey, bounds: &KeyBounds) -> Result<ApiKey, Fault> {
        bounds.check_reach(present)?;
        let limits = self.limits.map(|asked| bounds.changed_limits(present.limits, asked)).transpose()?;
        let mut changed = ApiKey { limits: limits.unwrap_or(present.limits), ..present.clone() };
        if let Some(labels) = self.labels {
            changed.labels = checked_labels(present.agent, labels)?;
            if !changed.labels.is_subset(&present.labels) {
                bounds.check_labelled(&changed)?;
            }
        }
        Ok(changed)
    }
}

/// The labels of a key; an owner key, which reaches no single agent, has none.
fn checked_labels(agent: Option<AgentId>, labels: Labels) -> Result<Labels, Fault> {
    if agent.is_none() && !labels.is_empty() {
        let wrong = "labels: an owner key sees everything of its tenant; only agent keys have labels";
        return Err(Fault::invalid_params(wrong));
    }
    Ok(labels)
}

/// Records that keys of a tenant ended: each, or the whole access of the tenant if there are many.
fn announce(write: &mut Write, tenant: TenantId, keys: &[KeyId]) {
    let scope = Scope::from(tenant);
    if keys.len() > MAX_ANNOUNCED {
        return write.change(scope, ChangeKind::Tenant, tenant.to_string());
    }
    for key in keys {
        write.change(scope, ChangeKind::Key, key.to_string());
    }
}

/// The summary of a write that creates, changes or ends a key, for the audit log.
fn summary(key: &ApiKey, revision: Revision, old: Option<&ApiKey>, new: Option<&ApiKey>) -> WriteSummary {
    WriteSummary::new(key.uid.to_string(), revision, difference(old, new)).owned_by(key.tenant, key.agent)
}
