//! Purges deleted and unreferenced rows in small batches.

use time::OffsetDateTime;

use super::{Store, StoreError};

/// Maximum number of rows per batch.
const BATCH: i64 = 1_000;

impl Store {
    /// Purges a batch of what was deleted or became unreferenced before `before`. Returns whether there may
    /// be more.
    pub async fn purge(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        Ok(self.purge_contents(before).await?
            | self.purge_sessions(before).await?
            | self.purge_tree().await?
            | self.purge_agent(before).await?
            | self.purge_tenant(before).await?
            | self.purge_found_contents(BATCH).await?)
    }

    /// Purges unreferenced content. Content that is still referenced elsewhere is kept.
    async fn purge_contents(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let done = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "with orphans as (
                select tenant, agent, hash, exists (
                    select from resource_contents r
                    where r.tenant = c.tenant and r.agent = c.agent and r.hash = c.hash
                ) or exists (
                    select from templates t
                    where t.tenant = c.tenant and t.agent = c.agent and t.body = c.hash
                ) or exists (
                    select from prompts p
                    where p.tenant = c.tenant and p.agent = c.agent and p.messages = c.hash
                ) or exists (
                    select from skills s
                    where s.tenant = c.tenant and s.agent = c.agent and s.hashes @> array[c.hash]
                ) as named
                from contents c where orphaned_at < $1 order by orphaned_at limit $2 for update skip locked
            ),
            kept as (
                update contents c set orphaned_at = null from orphans o
                where o.named and c.tenant = o.tenant and c.agent = o.agent and c.hash = o.hash
            )
            delete from contents c using orphans o
            where not o.named and c.tenant = o.tenant and c.agent = o.agent and c.hash = o.hash",
                    before,
                    BATCH,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Purges ended sessions, with their subscriptions and heads.
    async fn purge_sessions(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let done = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "with gone as (
                        delete from sessions where uid in (
                            select uid from sessions where ended_at < $1 order by ended_at limit $2
                            for update skip locked
                        ) returning uid
                    )
                    delete from heads using gone where scope = gone.uid",
                    before,
                    BATCH,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Purges a batch of the sessions of a deleted agent. Their heads are locked first, as when idle sessions
    /// are ended.
    async fn purge_sessions_of(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<bool, StoreError> {
        let done = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "with locked as (
                        select h.scope from sessions s join heads h on h.scope = s.uid
                        where s.tenant = $1 and s.agent = $2 limit $3 for update of h
                    ),
                    gone as (delete from sessions using locked where uid = locked.scope returning uid)
                    delete from heads using gone where scope = gone.uid",
                    tenant,
                    agent,
                    BATCH,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Purges the rows of one deleted agent: its definitions and sessions, then its content, then the agent.
    async fn purge_agent(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let deleted = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "select tenant, uid from agents where deleted_at < $1 order by deleted_at limit 1",
                    before
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(deleted) = deleted else { return Ok(false) };
        if self.purge_definitions(deleted.tenant, deleted.uid).await?
            | self.purge_sessions_of(deleted.tenant, deleted.uid).await?
        {
            return Ok(true);
        }
        let contents = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "delete from contents where tenant = $1 and agent = $2 and hash in (
                select hash from contents where tenant = $1 and agent = $2 limit $3
            )",
                    deleted.tenant,
                    deleted.uid,
                    BATCH,
                )
                .execute(connection)
                .await
            })
            .await?;
        if contents.rows_affected() == 0 {
            self.delete_agent_rows(deleted.tenant, deleted.uid).await?;
        }
        Ok(true)
    }

    /// Purges a batch of a deleted agent's definitions; returns whether there were any.
    async fn purge_definitions(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<bool, StoreError> {
        self.run_planned(async |connection| {
            sqlx::query_scalar!(
                r#"with gone_templates as (
                        delete from templates where tenant = $1 and agent = $2 and uri_template in (
                            select uri_template from templates where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    ),
                    gone_prompts as (
                        delete from prompts where tenant = $1 and agent = $2 and name in (
                            select name from prompts where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    ),
                    gone_skills as (
                        delete from skills where tenant = $1 and agent = $2 and root in (
                            select root from skills where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    ),
                    gone_mounts as (
                        delete from mounts where tenant = $1 and agent = $2 and name in (
                            select name from mounts where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    ),
                    gone_entries as (
                        delete from mount_entries where tenant = $1 and agent = $2 and (tree, path) in (
                            select tree, path from mount_entries where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    ),
                    gone_resources as (
                        delete from resources where tenant = $1 and agent = $2 and uri in (
                            select uri from resources where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    )
                    select exists (select from gone_templates) or exists (select from gone_prompts)
                        or exists (select from gone_skills) or exists (select from gone_resources)
                        or exists (select from gone_mounts) or exists (select from gone_entries) as "any!""#,
                tenant,
                agent,
                BATCH,
            )
            .fetch_one(connection)
            .await
        })
        .await
    }

    /// Purges a batch of what a mount listed that is gone or lists something else.
    async fn purge_tree(&self) -> Result<bool, StoreError> {
        let done = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "with gone as (select tenant, agent, tree from gone_trees limit 1 for update skip locked),
                    entries as (
                        delete from mount_entries where (tenant, agent, tree, path) in (
                            select e.tenant, e.agent, e.tree, e.path from mount_entries e join gone
                            on (e.tenant, e.agent, e.tree) = (gone.tenant, gone.agent, gone.tree) limit $1
                        ) returning 1
                    ),
                    trees as (
                        delete from gone_trees t using gone
                        where (t.tenant, t.agent, t.tree) = (gone.tenant, gone.agent, gone.tree)
                        and not exists (select from entries) returning 1
                    )
                    select from gone",
                    BATCH,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Purges the rows of one deleted tenant, once its agents are purged.
    async fn purge_tenant(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let deleted = self
            .run_planned(async |connection| {
                sqlx::query_scalar!(
                    "select uid from tenants t where deleted_at < $1 \
                     and not exists (select from agents a where a.tenant = t.uid) order by deleted_at limit 1",
                    before,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(deleted) = deleted else { return Ok(false) };
        let mut tx = self.transaction("begin").await?;
        sqlx::query!("delete from api_keys where tenant = $1", deleted).execute(tx.connection()).await?;
        sqlx::query!("delete from tenants where uid = $1", deleted).execute(tx.connection()).await?;
        sqlx::query!("delete from heads where scope = $1", deleted).execute(tx.connection()).await?;
        tx.end("commit").await?;
        Ok(true)
    }

    async fn delete_agent_rows(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<(), StoreError> {
        let mut tx = self.transaction("begin").await?;
        sqlx::query!("delete from api_keys where tenant = $1 and agent = $2", tenant, agent)
            .execute(tx.connection())
            .await?;
        sqlx::query!("delete from hooks where tenant = $1 and agent = $2", tenant, agent)
            .execute(tx.connection())
            .await?;
        sqlx::query!("delete from agents where tenant = $1 and uid = $2", tenant, agent)
            .execute(tx.connection())
            .await?;
        sqlx::query!("delete from heads where scope = $1", agent).execute(tx.connection()).await?;
        tx.end("commit").await
    }
}
