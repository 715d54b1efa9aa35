//! Agents. Their access settings belong to the tenant's scope, their descriptions to their own, and their slugs to the
//! gateway's.

use std::sync::Arc;

use super::Identity;
use super::tenants::lock;
use crate::model::agent::{Access, Agent, AgentDescription, Tenant};
use crate::model::audit::fingerprint::difference;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::precondition::Precondition;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::tool::ToolSets;
use crate::store::agents::RetiredSlug;
use crate::store::write::{Write, WriteSummary};

/// An agent to be created.
#[derive(Debug, Clone)]
pub struct NewAgent {
    /// Its slug.
    pub slug: Slug,
    /// Its tenant.
    pub tenant: Slug,
    /// Its description.
    pub description: AgentDescription,
    /// Who may read it.
    pub access: Access,
    /// Whether it is enabled; by default it is, unless the operator disabled the last agent of its slug and another caller
    /// creates this one.
    pub enabled: Option<bool>,
    /// Its limits, which only the operator sets; by default those of the last agent of its slug, or the tenant's
    /// initial ones.
    pub limits: Option<UseLimits>,
    /// Whether the operator creates it.
    pub by_operator: bool,
}

/// Changes to an agent; `None` leaves a member unchanged, an inner `None` removes it.
#[derive(Debug, Clone, Default)]
pub struct AgentPatch {
    /// The name.
    pub name: Option<String>,
    /// The title.
    pub title: Option<Option<String>>,
    /// The instructions.
    pub instructions: Option<Option<String>>,
    /// The tools that it offers.
    pub tools: Option<ToolSets>,
    /// Who may read it.
    pub access: Option<Access>,
    /// Whether it is enabled.
    pub enabled: Option<bool>,
    /// Its limits, which only the operator changes.
    pub limits: Option<UseLimits>,
    /// Whether the operator changes it.
    pub by_operator: bool,
}

impl AgentPatch {
    fn apply(self, agent: &Agent) -> Result<Agent, Fault> {
        let mut new = agent.clone();
        let description = &mut new.description;
        description.name = self.name.unwrap_or_else(|| description.name.clone());
        description.title = self.title.unwrap_or_else(|| description.title.clone());
        description.instructions = self.instructions.unwrap_or_else(|| description.instructions.clone());
        description.tools = self.tools.unwrap_or(description.tools);
        new.access = self.access.unwrap_or(new.access);
        if let Some(enabled) = self.enabled {
            let before =
                EnabledState { enabled: agent.enabled, disabled_by_operator: agent.disabled_by_operator };
            let EnabledState { enabled, disabled_by_operator } = before.set(enabled, self.by_operator)?;
            (new.enabled, new.disabled_by_operator) = (enabled, disabled_by_operator);
        }
        new.limits = self.limits.unwrap_or(new.limits);
        Ok(new)
    }
}

/// Whether an agent is enabled, and whether the operator disabled it.
#[derive(Debug, Clone, Copy)]
struct EnabledState {
    enabled: bool,
    disabled_by_operator: bool,
}

impl EnabledState {
    /// Sets it as the operator or an owner. Only the operator enables what the operator disabled.
    fn set(self, enabled: bool, by_operator: bool) -> Result<Self, Fault> {
        match (enabled, by_operator) {
            (_, true) => Ok(Self { enabled, disabled_by_operator: !enabled }),
            (true, false) if self.disabled_by_operator => Err(Fault::not_permitted(
                "enabled: the operator disabled this agent; only the operator key enables it",
            )),
            (_, false) => Ok(Self { enabled, ..self }),
        }
    }
}

impl Identity {
    /// An agent by its slug, read from the database.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn agent(&self, slug: &str) -> Result<Agent, Fault> {
        let slug = Slug::parse(slug).map_err(|_| Fault::NO_AGENT)?;
        self.store.agent(slug.as_str()).await?.ok_or(Fault::NO_AGENT)
    }

    /// Agents after a slug, in byte order; of one tenant if given.
    pub async fn agents(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Agent>, Fault> {
        Ok(self.store.agents(tenant, after, limit).await?)
    }

    /// Creates an agent.
    ///
    /// # Errors
    /// [`Fault::NotFound`] without the tenant, [`Fault::AlreadyExists`], [`Fault::SlugRetired`];
    /// [`Fault::InvalidParams`] if the tenant has as many agents or retired slugs as it may have;
    /// [`Fault::NotPermitted`] to enable what the operator disabled.
    pub async fn create_agent(
        self: &Arc<Self>,
        new: NewAgent,
        audited: AuditedWrite,
    ) -> Result<Agent, Fault> {
        let identity = Arc::clone(self);
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::GATEWAY, &audited, async |write| identity.insert_agent(write, new).await)
                    .await
            })
            .await
    }

    async fn insert_agent(&self, write: &mut Write, new: NewAgent) -> Result<Agent, Fault> {
        lock(write, Scope::GATEWAY).await?;
        let tenant = write.tenant(&new.tenant).await?.ok_or(Fault::NO_TENANT)?;
        lock(write, Scope::from(tenant.uid)).await?;
        let retired = free_slug(write, &new).await?;
        self.check_room(write, &tenant, retired.is_some()).await?;
        let uid = AgentId(self.system.uid()?);
        let initial = InitialSettings::of(retired, &tenant, uid);
        let EnabledState { enabled, disabled_by_operator } =
            match new.enabled.or(new.by_operator.then_some(true)) {
                Some(enabled) => initial.state.set(enabled, new.by_operator)?,
                None => initial.state,
            };
        let agent = Agent {
            uid,
            slug: new.slug,
            tenant: tenant.uid,
            tenant_slug: tenant.slug,
            description: new.description,
            access: new.access,
            enabled,
            disabled_by_operator,
            limits: new.limits.unwrap_or(initial.limits),
            quota_holder: initial.quota_holder,
            revision: write.create(Scope::from(uid), initial.last_revision).await?,
            created_at: self.system.clock.now(),
        };
        write.insert_agent(&agent).await?;
        announce(write, &agent);
        write.set_summary(summary(&agent, agent.revision, None, Some(&agent)));
        Ok(agent)
    }

    /// Whether a tenant may have one more agent. A slug that the tenant had before is not a new one.
    async fn check_room(&self, write: &mut Write, tenant: &Tenant, again: bool) -> Result<(), Fault> {
        let is_full = |count: i64, most: u32| count >= i64::from(most);
        let most = self.limits.agents_per_tenant;
        if is_full(write.count_agents(tenant.uid).await?, most) {
            return Err(Fault::invalid_params(format!(
                "tenant {} has {most} agents, as many as limits.agents_per_tenant allows; delete an agent first",
                tenant.slug
            )));
        }
        let most = self.limits.retired_slugs_per_tenant;
        if !again && is_full(write.count_retired_slugs(&tenant.slug).await?, most) {
            return Err(Fault::invalid_params(format!(
                "tenant {} has used and deleted {most} agent ids, as many as limits.retired_slugs_per_tenant allows; \
                 use one of them again",
                tenant.slug
            )));
        }
        Ok(())
    }

    /// Changes an agent.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`]; [`Fault::NotPermitted`] to enable what the operator disabled.
    pub async fn patch_agent(
        self: &Arc<Self>,
        agent: &Agent,
        patch: AgentPatch,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Agent, Fault> {
        let (identity, agent) = (Arc::clone(self), agent.clone());
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::from(agent.tenant), &audited, async |write| {
                        update(write, &agent, patch, &condition).await
                    })
                    .await
            })
            .await
    }

    /// Deletes an agent with its keys; its slug stays with its tenant. Returns its last revision.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_agent(
        self: &Arc<Self>,
        agent: &Agent,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Revision, Fault> {
        let (identity, agent) = (Arc::clone(self), agent.clone());
        self.writer
            .detached(async move {
                identity
                    .writer
                    .transact(Scope::GATEWAY, &audited, async |write| {
                        lock(write, Scope::GATEWAY).await?;
                        let (old, revision) = lock_agent(write, &agent).await?;
                        condition.check(Some(old.revision))?;
                        let now = identity.system.clock.now();
                        write.delete_agent(old.tenant, old.uid, revision, now).await?;
                        announce(write, &old);
                        write.set_summary(summary(&old, revision, Some(&old), None));
                        Ok(revision)
                    })
                    .await
            })
            .await
    }
}

/// The initial settings of an agent.
struct InitialSettings {
    last_revision: Revision,
    state: EnabledState,
    limits: UseLimits,
    quota_holder: AgentId,
}

impl InitialSettings {
    /// Those that its slug retained of the last agent, or the defaults of the tenant.
    fn of(retired: Option<RetiredSlug>, tenant: &Tenant, uid: AgentId) -> Self {
        let disabled_by_operator = retired.as_ref().is_some_and(|retired| retired.disabled_by_operator);
        Self {
            last_revision: retired.as_ref().map_or(Revision(0), |retired| retired.last_revision),
            state: EnabledState { enabled: !disabled_by_operator, disabled_by_operator },
            limits: retired.as_ref().map_or(tenant.agent_limits, |retired| retired.limits),
            quota_holder: retired.and_then(|retired| retired.quota_holder).unwrap_or(uid),
        }
    }
}

/// What the slug retained of the last agent that had it, if there was one and this tenant may use the slug.
async fn free_slug(write: &mut Write, new: &NewAgent) -> Result<Option<RetiredSlug>, Fault> {
    if write.agent(&new.slug).await?.is_some() {
        return Err(Fault::AlreadyExists("an agent with this id"));
    }
    match write.retired_agent(&new.slug).await? {
        Some(retired) if retired.tenant != new.tenant.as_str() => Err(Fault::SlugRetired),
        retired => Ok(retired),
    }
}

/// Locks an agent's tenant and the agent, and reads the agent again to check that it is still the same one.
async fn lock_agent(write: &mut Write, agent: &Agent) -> Result<(Agent, Revision), Fault> {
    lock(write, Scope::from(agent.tenant)).await?;
    let revision = write.lock(Scope::from(agent.uid)).await?.ok_or(Fault::NO_AGENT)?;
    let same = write.agent(&agent.slug).await?.filter(|present| present.uid == agent.uid);
    Ok((same.ok_or(Fault::NO_AGENT)?, revision))
}

async fn update(
    write: &mut Write,
    agent: &Agent,
    patch: AgentPatch,
    condition: &Precondition,
) -> Result<Agent, Fault> {
    let (old, revision) = lock_agent(write, agent).await?;
    condition.check(Some(old.revision))?;
    let mut new = patch.apply(&old)?;
    if new == old {
        return Ok(old);
    }
    new.revision = revision;
    write.update_agent(&new).await?;
    write.change(Scope::from(new.tenant), ChangeKind::Agent, new.uid.to_string());
    write.change(Scope::from(new.uid), ChangeKind::Agent, new.uid.to_string());
    if new.description.tools != old.description.tools {
        write.change(Scope::from(new.uid), ChangeKind::AgentTools, new.uid.to_string());
    }
    write.set_summary(summary(&new, revision, Some(&old), Some(&new)));
    Ok(new)
}

/// Records the changes of an agent that is created or deleted: to its slug, its access and itself.
fn announce(write: &mut Write, agent: &Agent) {
    write.change(Scope::GATEWAY, ChangeKind::Slug, agent.slug.as_str());
    write.change(Scope::from(agent.tenant), ChangeKind::Agent, agent.uid.to_string());
    write.change(Scope::from(agent.uid), ChangeKind::Agent, agent.uid.to_string());
}

/// The summary of a write that creates, changes or deletes an agent, for the audit log.
fn summary(agent: &Agent, revision: Revision, old: Option<&Agent>, new: Option<&Agent>) -> WriteSummary {
    WriteSummary::new(agent.slug.as_str(), revision, difference(old, new))
        .owned_by(agent.tenant, Some(agent.uid))
}
