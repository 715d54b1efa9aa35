//! Takes away, in small steps, what is deleted and what nothing names any more.

use time::OffsetDateTime;

use super::{Store, StoreError};

/// Most rows that one step takes away.
const STEP: i64 = 1_000;

impl Store {
    /// Takes away some of what was deleted or orphaned before `before`; answers whether there may be more.
    pub async fn purge(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        Ok(self.purge_contents(before).await?
            | self.purge_sessions(before).await?
            | self.purge_agent(before).await?
            | self.purge_tenant(before).await?)
    }

    /// Contents that nothing names. What was orphaned by one resource, template or prompt and is still named by another
    /// stays.
    async fn purge_contents(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let done = self
            .run(async |connection| {
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
                    STEP,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Sessions that ended, with their subscriptions and heads.
    async fn purge_sessions(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let done = self
            .run(async |connection| {
                sqlx::query!(
                    "with gone as (
                        delete from sessions where uid in (
                            select uid from sessions where ended_at < $1 order by ended_at limit $2
                            for update skip locked
                        ) returning uid
                    )
                    delete from heads using gone where scope = gone.uid",
                    before,
                    STEP,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Some of the sessions with a deleted agent, ended or not: nobody reaches them any more. Their heads are locked
    /// first, as by whoever ends them for being idle.
    async fn purge_sessions_of(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<bool, StoreError> {
        let done = self
            .run(async |connection| {
                sqlx::query!(
                    "with locked as (
                        select h.scope from sessions s join heads h on h.scope = s.uid
                        where s.tenant = $1 and s.agent = $2 limit $3 for update of h
                    ),
                    gone as (delete from sessions using locked where uid = locked.scope returning uid)
                    delete from heads using gone where scope = gone.uid",
                    tenant,
                    agent,
                    STEP,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// The rows of one deleted agent: what it registered and its sessions, then the contents of that, then everything else.
    async fn purge_agent(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let dead = self
            .run(async |connection| {
                sqlx::query!(
                    "select tenant, uid from agents where deleted_at < $1 order by deleted_at limit 1",
                    before
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(dead) = dead else { return Ok(false) };
        if self.purge_registry(dead.tenant, dead.uid).await?
            | self.purge_sessions_of(dead.tenant, dead.uid).await?
        {
            return Ok(true);
        }
        let contents = self
            .run(async |connection| {
                sqlx::query!(
                    "delete from contents where tenant = $1 and agent = $2 and hash in (
                select hash from contents where tenant = $1 and agent = $2 limit $3
            )",
                    dead.tenant,
                    dead.uid,
                    STEP,
                )
                .execute(connection)
                .await
            })
            .await?;
        if contents.rows_affected() == 0 {
            self.forget_agent(dead.tenant, dead.uid).await?;
        }
        Ok(true)
    }

    /// Some of what a deleted agent registered; answers whether there was any.
    async fn purge_registry(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<bool, StoreError> {
        self.run(async |connection| {
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
                    gone_resources as (
                        delete from resources where tenant = $1 and agent = $2 and uri in (
                            select uri from resources where tenant = $1 and agent = $2 limit $3
                        ) returning 1
                    )
                    select exists (select from gone_templates) or exists (select from gone_prompts)
                        or exists (select from gone_resources) as "any!""#,
                tenant,
                agent,
                STEP,
            )
            .fetch_one(connection)
            .await
        })
        .await
    }

    /// The rows of one deleted tenant, once its agents are gone.
    async fn purge_tenant(&self, before: OffsetDateTime) -> Result<bool, StoreError> {
        let dead = self
            .run(async |connection| {
                sqlx::query_scalar!(
                    "select uid from tenants t where deleted_at < $1 \
                     and not exists (select from agents a where a.tenant = t.uid) order by deleted_at limit 1",
                    before,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(dead) = dead else { return Ok(false) };
        let mut tx = self.transaction("begin").await?;
        sqlx::query!("delete from api_keys where tenant = $1", dead).execute(tx.connection()).await?;
        sqlx::query!("delete from tenants where uid = $1", dead).execute(tx.connection()).await?;
        sqlx::query!("delete from heads where scope = $1", dead).execute(tx.connection()).await?;
        tx.settle("commit").await?;
        Ok(true)
    }

    async fn forget_agent(&self, tenant: uuid::Uuid, agent: uuid::Uuid) -> Result<(), StoreError> {
        let mut tx = self.transaction("begin").await?;
        sqlx::query!("delete from api_keys where tenant = $1 and agent = $2", tenant, agent)
            .execute(tx.connection())
            .await?;
        sqlx::query!("delete from agents where tenant = $1 and uid = $2", tenant, agent)
            .execute(tx.connection())
            .await?;
        sqlx::query!("delete from heads where scope = $1", agent).execute(tx.connection()).await?;
        tx.settle("commit").await
    }
}
