//! Agents, and the retired slugs of deleted agents.

use std::sync::Arc;

use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;

use super::snapshot::Snapshot;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::agent::{Access, AccessLimits, Agent, AgentAccess, AgentDescription};
use crate::model::ids::{AgentId, AgentRef, Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::scope::{Revision, Scope};
use crate::model::tool::ToolSets;

struct Row {
    uid: uuid::Uuid,
    slug: String,
    tenant: uuid::Uuid,
    tenant_slug: String,
    name: String,
    title: Option<String>,
    instructions: Option<String>,
    tools: Vec<String>,
    access: String,
    enabled: bool,
    disabled_by_operator: bool,
    limits: Json<UseLimits>,
    quota_holder: uuid::Uuid,
    revision: i64,
    created_at: OffsetDateTime,
}

impl TryFrom<Row> for Agent {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let slug = |text: &str| Slug::parse(text).map_err(|_| StoreError::Unreadable("slug"));
        Ok(Self {
            uid: AgentId(row.uid),
            slug: slug(&row.slug)?,
            tenant: TenantId(row.tenant),
            tenant_slug: slug(&row.tenant_slug)?,
            description: AgentDescription {
                name: row.name,
                title: row.title,
                instructions: row.instructions,
                tools: ToolSets::from_texts(&row.tools),
            },
            access: access(&row.access)?,
            enabled: row.enabled,
            disabled_by_operator: row.disabled_by_operator,
            limits: row.limits.0,
            quota_holder: AgentId(row.quota_holder),
            revision: Revision(row.revision),
            created_at: row.created_at,
        })
    }
}

fn access(text: &str) -> Result<Access, StoreError> {
    Access::parse(text).ok_or(StoreError::Unreadable("access"))
}

/// The access settings of an agent, with the limits of the agent and its tenant.
pub(super) fn agent_access(
    (tenant, agent): (TenantId, AgentId),
    stored: &str,
    (enabled, only_resources): (bool, bool),
    limits: AccessLimits,
) -> Result<AgentAccess, StoreError> {
    let (access, limits) = (access(stored)?, Arc::new(limits));
    Ok(AgentAccess { agent, tenant, access, enabled, only_resources, limits })
}

/// A slug that belonged to an agent that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetiredSlug {
    /// Slug of the tenant that may use it again.
    pub tenant: String,
    /// Last revision of the deleted agent.
    pub last_revision: Revision,
    /// Limits that the next agent of this slug inherits.
    pub limits: UseLimits,
    /// Whether the operator had disabled the deleted agent.
    pub disabled_by_operator: bool,
    /// The agent under which quotas and rates are counted; `None` if that was not recorded.
    pub quota_holder: Option<AgentId>,
}

impl Store {
    /// Reads the agent with this slug, unless it is deleted.
    pub async fn agent(&self, slug: &str) -> Result<Option<Agent>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query_as!(
        Row,
        r#"select a.uid, a.slug, a.tenant, t.slug as tenant_slug, a.name, a.title, a.instructions, a.tools, a.access,
         a.enabled, a.disabled_by_operator, a.limits as "limits: Json<UseLimits>",
         coalesce(a.quota_holder, a.uid) as "quota_holder!", h.revision, a.created_at
         from agents a join tenants t on t.uid = a.tenant join heads h on h.scope = a.uid
         where a.slug = $1 and a.deleted_at is null"#,
        slug,
    )
    .fetch_optional(connection)
    .await
            })
            .await?;
        row.map(Agent::try_from).transpose()
    }

    /// Lists agents that are not deleted, after a slug, in byte order; of one tenant if given.
    pub async fn agents(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Agent>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_as!(
        Row,
        r#"select a.uid, a.slug, a.tenant, t.slug as tenant_slug, a.name, a.title, a.instructions, a.tools, a.access,
         a.enabled, a.disabled_by_operator, a.limits as "limits: Json<UseLimits>",
         coalesce(a.quota_holder, a.uid) as "quota_holder!", h.revision, a.created_at
         from agents a join tenants t on t.uid = a.tenant join heads h on h.scope = a.uid
         where a.slug > $1 and a.deleted_at is null and ($2::uuid is null or a.tenant = $2)
         order by a.slug limit $3"#,
        after,
        tenant.map(|tenant| tenant.0),
        limit,
    )
    .fetch_all(connection)
    .await
            })
            .await?;
        rows.into_iter().map(Agent::try_from).collect()
    }
}

/// The agent that a slug names, from one snapshot.
#[derive(Debug)]
pub struct AgentLookup {
    /// The revision of the gateway, whose directory resolves the slug.
    pub gateway: Revision,
    /// The agent, with the revision of its tenant.
    pub agent: Option<(AgentAccess, Revision)>,
}

impl Store {
    /// Looks up the agent that a slug names.
    pub async fn look_up_agent(&self, slug: &str) -> Result<AgentLookup, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select gateway.revision as gateway, a.uid as "uid?", a.tenant as "tenant?",
                        a.access as "access?", a.enabled as "enabled?",
                        a.only_resources as "only_resources?", a.quota_holder,
                        a.limits as "limits?: Json<UseLimits>", t.limits as "tenant_limits?: Json<UseLimits>",
                        own.revision as "revision?"
                    from heads gateway
                    left join (
                        agents a join tenants t on t.uid = a.tenant join heads own on own.scope = a.tenant
                    ) on a.slug = $1 and a.deleted_at is null
                    where gateway.scope = $2"#,
                    slug,
                    Scope::GATEWAY.0,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        let flags = row.enabled.zip(row.only_resources);
        let agent = match (row.uid, row.tenant, row.access, flags, row.limits, row.tenant_limits) {
            (Some(uid), Some(tenant), Some(access), Some(flags), Some(agent), Some(limits)) => {
                let quota_holder = AgentId(row.quota_holder.unwrap_or(uid));
                let limits = AccessLimits { quota_holder, agent: agent.0, tenant: limits.0 };
                let found = agent_access((TenantId(tenant), AgentId(uid)), &access, flags, limits)?;
                Some((found, Revision(row.revision.ok_or(StoreError::Unreadable("head"))?)))
            }
            _ => None,
        };
        Ok(AgentLookup { gateway: Revision(row.gateway), agent })
    }

    /// Reads the access settings of an agent with the revision of its tenant.
    pub async fn agent_access(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<(Option<Revision>, Option<AgentAccess>), StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select h.revision, a.access as "access?", a.enabled as "enabled?",
                        a.only_resources as "only_resources?", a.quota_holder,
                        a.limits as "limits?: Json<UseLimits>", t.limits as "tenant_limits?: Json<UseLimits>"
                    from heads h
                    left join (agents a join tenants t on t.uid = a.tenant)
                        on a.tenant = $1 and a.uid = $2 and a.deleted_at is null
                    where h.scope = $1"#,
                    tenant.0,
                    agent.0,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(row) = row else { return Ok((None, None)) };
        let flags = row.enabled.zip(row.only_resources);
        let access = match (row.access, flags, row.limits, row.tenant_limits) {
            (Some(access), Some(flags), Some(own), Some(limits)) => {
                let quota_holder = row.quota_holder.map_or(agent, AgentId);
                let limits = AccessLimits { quota_holder, agent: own.0, tenant: limits.0 };
                Some(agent_access((tenant, agent), &access, flags, limits)?)
            }
            _ => None,
        };
        Ok((Some(Revision(row.revision)), access))
    }
}

impl Snapshot {
    /// Whether the agent exists and is not deleted.
    pub async fn agent_exists(&mut self, tenant: TenantId, agent: AgentId) -> Result<bool, StoreError> {
        agent_exists(self.connection(), tenant, agent).await
    }
}

impl Write {
    /// Reads the agent with this slug in this transaction, unless it is deleted.
    pub async fn agent(&mut self, slug: &Slug) -> Result<Option<Agent>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"select a.uid, a.slug, a.tenant, t.slug as tenant_slug, a.name, a.title, a.instructions, a.tools, a.access,
             a.enabled, a.disabled_by_operator, a.limits as "limits: Json<UseLimits>",
         coalesce(a.quota_holder, a.uid) as "quota_holder!", h.revision, a.created_at
             from agents a join tenants t on t.uid = a.tenant join heads h on h.scope = a.uid
             where a.slug = $1 and a.deleted_at is null"#,
            slug.as_str(),
        )
        .fetch_optional(self.connection())
        .await?;
        row.map(Agent::try_from).transpose()
    }

    /// The agents of a tenant that are not deleted, in the order in which their scopes are locked.
    pub async fn agents_of(&mut self, tenant: TenantId) -> Result<Vec<(AgentId, String)>, StoreError> {
        let rows = sqlx::query!(
            "select uid, slug from agents where tenant = $1 and deleted_at is null order by uid",
            tenant.0
        )
        .fetch_all(self.connection())
        .await?;
        Ok(rows.into_iter().map(|row| (AgentId(row.uid), row.slug)).collect())
    }

    /// Reads the retired slug, if an agent had it before.
    pub async fn retired_agent(&mut self, slug: &Slug) -> Result<Option<RetiredSlug>, StoreError> {
        let row = sqlx::query!(
            r#"select tenant, last_revision, limits as "limits: Json<UseLimits>", disabled_by_operator, quota_holder
            from retired_agents where slug = $1"#,
            slug.as_str()
        )
        .fetch_optional(self.connection())
        .await?;
        Ok(row.map(|row| RetiredSlug {
            tenant: row.tenant,
            last_revision: Revision(row.last_revision),
            limits: row.limits.0,
            disabled_by_operator: row.disabled_by_operator,
            quota_holder: row.quota_holder.map(AgentId),
        }))
    }

    /// Number of agents of a tenant that are not deleted.
    pub async fn count_agents(&mut self, tenant: TenantId) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from agents where tenant = $1 and deleted_at is null"#,
            tenant.0
        )
        .fetch_one(self.connection())
        .await?;
        Ok(count)
    }

    /// Number of slugs reserved for a tenant because its deleted agents had them.
    pub async fn count_retired_slugs(&mut self, tenant: &Slug) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from retired_agents where tenant = $1"#,
            tenant.as_str()
        )
        .fetch_one(self.connection())
        .await?;
        Ok(count)
    }

    /// Inserts an agent.
    pub async fn insert_agent(&mut self, agent: &Agent) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into agents (uid, tenant, slug, name, title, instructions, access, enabled, limits, created_at, \
             disabled_by_operator, quota_holder, tools) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            agent.uid.0,
            agent.tenant.0,
            agent.slug.as_str(),
            agent.description.name,
            agent.description.title,
            agent.description.instructions,
            agent.access.as_str(),
            agent.enabled,
            Json(agent.limits) as _,
            agent.created_at,
            agent.disabled_by_operator,
            agent.quota_holder.0,
            &agent.description.tools.to_texts(),
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Updates an agent's description, access and limits.
    pub async fn update_agent(&mut self, agent: &Agent) -> Result<(), StoreError> {
        sqlx::query!(
            "update agents set name = $3, title = $4, instructions = $5, access = $6, enabled = $7, limits = $8, \
             disabled_by_operator = $9, tools = $10 where tenant = $1 and uid = $2",
            agent.tenant.0,
            agent.uid.0,
            agent.description.name,
            agent.description.title,
            agent.description.instructions,
            agent.access.as_str(),
            agent.enabled,
            Json(agent.limits) as _,
            agent.disabled_by_operator,
            &agent.description.tools.to_texts(),
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Marks an agent as deleted, revokes its keys, and reserves its slug for its tenant, with the operator's
    /// settings. The agent's rows are purged later.
    pub async fn delete_agent(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "with ended as (
                update agents set deleted_at = $3 where tenant = $1 and uid = $2
                returning slug, tenant, limits, disabled_by_operator, coalesce(quota_holder, uid) as quota_holder
            ),
            revoked as (
                update api_keys set revoked_at = $3 where tenant = $1 and agent = $2 and revoked_at is null
            )
            insert into retired_agents (slug, tenant, last_revision, limits, disabled_by_operator, quota_holder)
            select ended.slug, tenants.slug, $4, ended.limits, ended.disabled_by_operator, ended.quota_holder
            from ended join tenants on tenants.uid = ended.tenant
            on conflict (slug) do update set tenant = excluded.tenant, last_revision = excluded.last_revision,
                limits = excluded.limits, disabled_by_operator = excluded.disabled_by_operator,
                quota_holder = excluded.quota_holder",
            tenant.0,
            agent.0,
            now,
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Adds `by` to the number of resources of an agent, and returns the new number; `None` if the agent is
    /// deleted.
    pub async fn count_resources(&mut self, agent: AgentRef, by: i32) -> Result<Option<i32>, StoreError> {
        let count = sqlx::query_scalar!(
            "update agents set resource_count = resource_count + $3 \
             where tenant = $1 and uid = $2 and deleted_at is null returning resource_count",
            agent.tenant.0,
            agent.uid.0,
            by,
        )
        .fetch_optional(self.connection())
        .await?;
        Ok(count)
    }

    /// Whether the agent exists and is not deleted.
    pub async fn agent_exists(&mut self, tenant: TenantId, agent: AgentId) -> Result<bool, StoreError> {
        agent_exists(self.connection(), tenant, agent).await
    }
}

async fn agent_exists(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
) -> Result<bool, StoreError> {
    let lives = sqlx::query_scalar!(
        r#"select exists (
            select from agents where tenant = $1 and uid = $2 and deleted_at is null
        ) as "lives!""#,
        tenant.0,
        agent.0,
    )
    .fetch_one(connection)
    .await?;
    Ok(lives)
}
