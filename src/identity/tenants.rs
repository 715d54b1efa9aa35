//! Tenants: creation, reads, changes and deletion.

use std::sync::Arc;

use super::Identity;
use crate::model::agent::{KeyAge, Tenant};
use crate::model::audit::fingerprint::difference;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::ids::{Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::precondition::{Precondition, Written};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::write::{Write, WriteSummary};

/// The first migration creates the gateway's scope.
const NO_GATEWAY: &str = "the gateway's scope has no head";

/// A tenant to be created.
#[derive(Debug, Clone)]
pub struct NewTenant {
    /// Its slug.
    pub slug: Slug,
    /// Its name.
    pub name: String,
    /// The maximum age of its keys.
    pub max_key_age: Option<KeyAge>,
    /// Its limits.
    pub limits: UseLimits,
    /// The initial limits of its new agents.
    pub agent_limits: UseLimits,
}

/// Changes to a tenant; `None` leaves a member unchanged.
#[derive(Debug, Clone, Default)]
pub struct TenantChange {
    /// Its name.
    pub name: Option<String>,
    /// The maximum age of its keys; `Some(None)` removes it.
    pub max_key_age: Option<Option<KeyAge>>,
    /// Its limits.
    pub limits: Option<UseLimits>,
    /// The initial limits of its new agents.
    pub agent_limits: Option<UseLimits>,
}

impl Identity {
    /// A tenant by its slug.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn tenant(&self, slug: &Slug) -> Result<Tenant, Fault> {
        self.store.tenant(slug).await?.ok_or(Fault::NO_TENANT)
    }

    /// Tenants after a slug, in byte order.
    pub async fn tenants(&self, after: &str, limit: i64) -> Result<Vec<Tenant>, Fault> {
        Ok(self.store.tenants(after, limit).await?)
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// [`Fault::AlreadyExists`].
    pub async fn create_tenant(
        self: &Arc<Self>,
        new: NewTenant,
        audited: AuditedWrite,
    ) -> Result<Tenant, Fault> {
        let identity = Arc::clone(self);
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::GATEWAY, &audited, async |write| {
                        identity.insert_tenant(write, new).await
                    })
                    .await
            })
            .await
    }

    async fn insert_tenant(&self, write: &mut Write, new: NewTenant) -> Result<Tenant, Fault> {
        let NewTenant { slug, name, max_key_age, limits, agent_limits } = new;
        lock(write, Scope::GATEWAY).await?;
        if write.tenant(&slug).await?.is_some() {
            return Err(Fault::AlreadyExists("a tenant with this id"));
        }
        let uid = TenantId(self.system.uid()?);
        let last = write.retired_tenant(&slug).await?;
        let revision = write.create(Scope::from(uid), last).await?;
        let created_at = self.system.clock.now();
        let tenant = Tenant { uid, slug, name, max_key_age, limits, agent_limits, revision, created_at };
        write.insert_tenant(&tenant).await?;
        write.change(Scope::GATEWAY, ChangeKind::Tenant, uid.to_string());
        write.change(Scope::from(uid), ChangeKind::Tenant, uid.to_string());
        write.set_summary(summary(&tenant, revision, None, Some(&tenant)));
        Ok(tenant)
    }

    /// Changes a tenant.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn update_tenant(
        self: &Arc<Self>,
        slug: Slug,
        change: TenantChange,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Tenant, Fault> {
        let identity = Arc::clone(self);
        let uid = self.tenant(&slug).await?.uid;
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::from(uid), &audited, async |write| {
                        let revision = lock(write, Scope::from(uid)).await?;
                        let tenant =
                            write.tenant(&slug).await?.filter(|t| t.uid == uid).ok_or(Fault::NO_TENANT)?;
                        condition.check(Some(tenant.revision))?;
                        let mut wanted = Tenant {
                            name: change.name.unwrap_or_else(|| tenant.name.clone()),
                            max_key_age: change.max_key_age.unwrap_or(tenant.max_key_age),
                            limits: change.limits.unwrap_or(tenant.limits),
                            agent_limits: change.agent_limits.unwrap_or(tenant.agent_limits),
                            ..tenant.clone()
                        };
                        if wanted != tenant {
                            wanted.revision = revision;
                            write.update_tenant(&wanted).await?;
                            write.change(Scope::from(uid), ChangeKind::Tenant, uid.to_string());
                            write.set_summary(summary(&wanted, revision, Some(&tenant), Some(&wanted)));
                        }
                        Ok(wanted)
                    })
                    .await
            })
            .await
    }

    /// Deletes a tenant with all its agents and keys.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_tenant(
        self: &Arc<Self>,
        slug: Slug,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let identity = Arc::clone(self);
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::GATEWAY, &audited, async |write| {
                        identity.end_tenant(write, &slug, &condition).await
                    })
                    .await
            })
            .await
    }

    async fn end_tenant(
        &self,
        write: &mut Write,
        slug: &Slug,
        condition: &Precondition,
    ) -> Result<Written, Fault> {
        lock(write, Scope::GATEWAY).await?;
        let tenant = write.tenant(slug).await?.ok_or(Fault::NO_TENANT)?;
        let scope = Scope::from(tenant.uid);
        let revision = lock(write, scope).await?;
        condition.check(Some(tenant.revision))?;
        let now = self.system.clock.now();
        for (agent, slug) in write.agents_of(tenant.uid).await? {
            let revision = lock(write, Scope::from(agent)).await?;
            write.delete_agent(tenant.uid, agent, revision, now).await?;
            write.change(Scope::GATEWAY, ChangeKind::Slug, slug);
            write.change(Scope::from(agent), ChangeKind::Agent, agent.to_string());
        }
        write.delete_tenant(&tenant, revision, now).await?;
        write.change(Scope::GATEWAY, ChangeKind::Tenant, tenant.uid.to_string());
        write.change(scope, ChangeKind::Tenant, tenant.uid.to_string());
        write.set_summary(summary(&tenant, revision, Some(&tenant), None));
        Ok(Written { revision, created: false })
    }
}

/// Locks the scope of an object that was just read; if the scope has no head, it was deleted meanwhile.
pub(super) async fn lock(write: &mut Write, scope: Scope) -> Result<Revision, Fault> {
    match write.lock(scope).await? {
        Some(revision) => Ok(revision),
        None if scope == Scope::GATEWAY => Err(Fault::Internal(NO_GATEWAY.to_owned())),
        None => Err(Fault::NO_TENANT),
    }
}

/// The summary of a write that creates, changes or deletes a tenant, for the audit log.
fn summary(tenant: &Tenant, revision: Revision, old: Option<&Tenant>, new: Option<&Tenant>) -> WriteSummary {
    WriteSummary::new(tenant.slug.as_str(), revision, difference(old, new)).owned_by(tenant.uid, None)
}
