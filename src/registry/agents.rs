//! Agents. What decides over access changes with the tenant's scope, what an agent says of itself with its own, and
//! which agent a slug names with the gateway's.

use std::sync::Arc;

use super::Registry;
use super::fingerprint::difference;
use super::tenants::lock;
use super::write::Precondition;
use crate::model::agent::{Access, Agent, AgentDescription};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::write::{Told, Write};

const NO_AGENT: Fault = Fault::NotFound("agent");

/// An agent as it is to be made.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// What people type.
    pub slug: Slug,
    /// Whose it is.
    pub tenant: Slug,
    /// What it says of itself.
    pub description: AgentDescription,
    /// Who may read it.
    pub access: Access,
    /// Whether it answers.
    pub enabled: bool,
    /// How much may be used of it.
    pub limits: UseLimits,
}

/// What is to change of an agent; `None` leaves a member as it is, an inner `None` takes it away.
#[derive(Debug, Clone, Default)]
pub struct AgentPatch {
    /// The name.
    pub name: Option<String>,
    /// The title.
    pub title: Option<Option<String>>,
    /// The instructions.
    pub instructions: Option<Option<String>>,
    /// Who may read it.
    pub access: Option<Access>,
    /// Whether it answers.
    pub enabled: Option<bool>,
    /// How much may be used of it.
    pub limits: Option<UseLimits>,
}

impl AgentPatch {
    fn apply(self, agent: &Agent) -> Agent {
        let mut new = agent.clone();
        let description = &mut new.description;
        description.name = self.name.unwrap_or_else(|| description.name.clone());
        description.title = self.title.unwrap_or_else(|| description.title.clone());
        description.instructions = self.instructions.unwrap_or_else(|| description.instructions.clone());
        new.access = self.access.unwrap_or(new.access);
        new.enabled = self.enabled.unwrap_or(new.enabled);
        new.limits = self.limits.unwrap_or(new.limits);
        new
    }
}

impl Registry {
    /// An agent by its slug, read from the database.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn agent(&self, slug: &str) -> Result<Agent, Fault> {
        let slug = Slug::parse(slug).map_err(|_| NO_AGENT)?;
        self.store.agent(slug.as_str()).await?.ok_or(NO_AGENT)
    }

    /// Agents after a slug, in byte order; of one tenant where one is named.
    pub async fn agents(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Agent>, Fault> {
        Ok(self.store.agents(tenant, after, limit).await?)
    }

    /// Makes an agent.
    ///
    /// # Errors
    /// [`Fault::NotFound`] without the tenant, [`Fault::AlreadyExists`], [`Fault::SlugRetired`].
    pub async fn create_agent(self: &Arc<Self>, new: NewAgent) -> Result<Agent, Fault> {
        let registry = Arc::clone(self);
        self.detached(async move {
            registry.transact(Scope::GATEWAY, async |write| registry.insert_agent(write, new).await).await
        })
        .await
    }

    async fn insert_agent(&self, write: &mut Write, new: NewAgent) -> Result<Agent, Fault> {
        lock(write, Scope::GATEWAY).await?;
        let tenant = write.tenant(&new.tenant).await?.ok_or(Fault::NotFound("tenant"))?;
        lock(write, Scope::from(tenant.uid)).await?;
        let last = free_slug(write, &new).await?;
        let uid = AgentId(self.sources.uid()?);
        let agent = Agent {
            uid,
            slug: new.slug,
            tenant: tenant.uid,
            tenant_slug: tenant.slug,
            description: new.description,
            access: new.access,
            enabled: new.enabled,
            limits: new.limits,
            revision: write.create(Scope::from(uid), last).await?,
            created_at: self.sources.clock.now(),
        };
        write.insert_agent(&agent).await?;
        announce(write, &agent);
        write.tell(told(&agent, agent.revision, None, Some(&agent)));
        Ok(agent)
    }

    /// Changes an agent.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn patch_agent(
        self: &Arc<Self>,
        agent: &Agent,
        patch: AgentPatch,
        condition: Precondition,
    ) -> Result<Agent, Fault> {
        let (registry, agent) = (Arc::clone(self), agent.clone());
        self.detached(async move {
            registry
                .transact(Scope::from(agent.tenant), async |write| {
                    update(write, &agent, patch, &condition).await
                })
                .await
        })
        .await
    }

    /// Deletes an agent with its keys; its slug stays with its tenant. Answers its last revision.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_agent(
        self: &Arc<Self>,
        agent: &Agent,
        condition: Precondition,
    ) -> Result<Revision, Fault> {
        let (registry, agent) = (Arc::clone(self), agent.clone());
        self.detached(async move {
            registry
                .transact(Scope::GATEWAY, async |write| {
                    lock(write, Scope::GATEWAY).await?;
                    let (old, revision) = lock_agent(write, &agent).await?;
                    condition.check(Some(old.revision))?;
                    let now = registry.sources.clock.now();
                    write.delete_agent(old.tenant, old.uid, revision, now).await?;
                    announce(write, &old);
                    write.tell(told(&old, revision, Some(&old), None));
                    Ok(revision)
                })
                .await
        })
        .await
    }
}

/// The last revision of the slug's earlier life, if this tenant may use it.
async fn free_slug(write: &mut Write, new: &NewAgent) -> Result<Revision, Fault> {
    if write.agent(&new.slug).await?.is_some() {
        return Err(Fault::AlreadyExists("an agent with this id"));
    }
    match write.retired_agent(&new.slug).await? {
        Some(retired) if retired.tenant != new.tenant.as_str() => Err(Fault::SlugRetired),
        retired => Ok(retired.map_or(Revision(0), |retired| retired.last_revision)),
    }
}

/// Locks an agent's tenant and the agent, and reads the agent again: still there, and the same one.
async fn lock_agent(write: &mut Write, agent: &Agent) -> Result<(Agent, Revision), Fault> {
    lock(write, Scope::from(agent.tenant)).await?;
    let revision = write.lock(Scope::from(agent.uid)).await?.ok_or(NO_AGENT)?;
    let same = write.agent(&agent.slug).await?.filter(|present| present.uid == agent.uid);
    Ok((same.ok_or(NO_AGENT)?, revision))
}

async fn update(
    write: &mut Write,
    agent: &Agent,
    patch: AgentPatch,
    condition: &Precondition,
) -> Result<Agent, Fault> {
    let (old, revision) = lock_agent(write, agent).await?;
    condition.check(Some(old.revision))?;
    let mut new = patch.apply(&old);
    if new == old {
        return Ok(old);
    }
    new.revision = revision;
    write.update_agent(&new).await?;
    write.change(Scope::from(new.tenant), ChangeKind::Agent, new.uid.to_string());
    write.change(Scope::from(new.uid), ChangeKind::Agent, new.uid.to_string());
    write.tell(told(&new, revision, Some(&old), Some(&new)));
    Ok(new)
}

/// An agent came or went: its slug, its access and the agent itself changed.
fn announce(write: &mut Write, agent: &Agent) {
    write.change(Scope::GATEWAY, ChangeKind::Slug, agent.slug.as_str());
    write.change(Scope::from(agent.tenant), ChangeKind::Agent, agent.uid.to_string());
    write.change(Scope::from(agent.uid), ChangeKind::Agent, agent.uid.to_string());
}

/// What a write tells the audit log that makes, changes or deletes an agent.
fn told(agent: &Agent, revision: Revision, old: Option<&Agent>, new: Option<&Agent>) -> Told {
    Told {
        subject: agent.slug.to_string(),
        revision,
        created: old.is_none(),
        tenant: Some(agent.tenant),
        agent: Some(agent.uid),
        difference: difference(old, new),
    }
}
