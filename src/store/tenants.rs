//! Tenants.

use sqlx::types::Json;
use time::OffsetDateTime;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::agent::{KeyAge, Tenant, TenantAddress};
use crate::model::ids::{Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::scope::{Revision, Scope};

struct Row {
    uid: uuid::Uuid,
    slug: String,
    name: String,
    max_key_age_days: Option<i32>,
    limits: Json<UseLimits>,
    agent_limits: Json<UseLimits>,
    revision: i64,
    created_at: OffsetDateTime,
}

impl TryFrom<Row> for Tenant {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            uid: TenantId(row.uid),
            slug: Slug::parse(&row.slug).map_err(|_| StoreError::Unreadable("tenant"))?,
            name: row.name,
            max_key_age: key_age(row.max_key_age_days)?,
            limits: row.limits.0,
            agent_limits: row.agent_limits.0,
            revision: Revision(row.revision),
            created_at: row.created_at,
        })
    }
}

/// Reads the maximum age of keys.
pub(super) fn key_age(days: Option<i32>) -> Result<Option<KeyAge>, StoreError> {
    let age = |days: i32| u16::try_from(days).ok().and_then(KeyAge::from_days);
    days.map(|days| age(days).ok_or(StoreError::Unreadable("maximum age of keys"))).transpose()
}

fn days(age: Option<KeyAge>) -> Option<i32> {
    age.map(|age| age.days().into())
}

impl Store {
    /// Reads the tenant with this slug, unless it is deleted.
    pub async fn tenant(&self, slug: &Slug) -> Result<Option<Tenant>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query_as!(
                    Row,
                    r#"select uid, slug, name, max_key_age_days, limits as "limits: Json<UseLimits>",
            agent_limits as "agent_limits: Json<UseLimits>", revision, created_at from tenants
            where slug = $1 and deleted_at is null"#,
                    slug.as_str(),
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        row.map(Tenant::try_from).transpose()
    }

    /// Lists tenants that are not deleted, after a slug, in byte order.
    pub async fn tenants(&self, after: &str, limit: i64) -> Result<Vec<Tenant>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_as!(
                    Row,
                    r#"select uid, slug, name, max_key_age_days, limits as "limits: Json<UseLimits>",
            agent_limits as "agent_limits: Json<UseLimits>", revision, created_at from tenants
                    where slug > $1 and deleted_at is null order by slug limit $2"#,
                    after,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(Tenant::try_from).collect()
    }
}

impl Store {
    /// Looks up the tenant that a slug names, with the revision of the gateway, whose directory resolves the slug.
    pub async fn look_up_tenant(
        &self,
        slug: &Slug,
    ) -> Result<(Option<Revision>, Option<TenantAddress>), StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select gateway.revision, t.uid as "uid?", t.created_at as "created_at?",
                        exists (select from retired_tenants where slug = $1) as "recreated!"
                    from heads gateway left join tenants t on t.slug = $1 and t.deleted_at is null
                    where gateway.scope = $2"#,
                    slug.as_str(),
                    Scope::GATEWAY.0,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        let found = row.uid.zip(row.created_at).map(|(uid, created_at)| TenantAddress {
            uid: TenantId(uid),
            created_at,
            recreated: row.recreated,
        });
        Ok((Some(Revision(row.revision)), found))
    }
}

impl Write {
    /// Reads the tenant with this slug in this transaction, unless it is deleted.
    pub async fn tenant(&mut self, slug: &Slug) -> Result<Option<Tenant>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"select uid, slug, name, max_key_age_days, limits as "limits: Json<UseLimits>",
            agent_limits as "agent_limits: Json<UseLimits>", revision, created_at from tenants
            where slug = $1 and deleted_at is null"#,
            slug.as_str(),
        )
        .fetch_optional(self.connection())
        .await?;
        row.map(Tenant::try_from).transpose()
    }

    /// The maximum age of a tenant's keys.
    pub async fn max_key_age(&mut self, tenant: TenantId) -> Result<Option<KeyAge>, StoreError> {
        let days = sqlx::query_scalar!("select max_key_age_days from tenants where uid = $1", tenant.0)
            .fetch_optional(self.connection())
            .await?;
        key_age(days.flatten())
    }

    /// The last revision of a deleted tenant with this slug; 0 if there was none.
    pub async fn retired_tenant(&mut self, slug: &Slug) -> Result<Revision, StoreError> {
        let last =
            sqlx::query_scalar!("select last_revision from retired_tenants where slug = $1", slug.as_str())
                .fetch_optional(self.connection())
                .await?;
        Ok(Revision(last.unwrap_or(0)))
    }

    /// Inserts a tenant.
    pub async fn insert_tenant(&mut self, tenant: &Tenant) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into tenants (uid, slug, name, limits, revision, created_at, max_key_age_days, agent_limits) \
             values ($1, $2, $3, $4, $5, $6, $7, $8)",
            tenant.uid.0,
            tenant.slug.as_str(),
            tenant.name,
            Json(tenant.limits) as _,
            tenant.revision.0,
            tenant.created_at,
            days(tenant.max_key_age),
            Json(tenant.agent_limits) as _,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Updates a tenant.
    pub async fn update_tenant(&mut self, tenant: &Tenant) -> Result<(), StoreError> {
        sqlx::query!(
            "update tenants set name = $2, max_key_age_days = $3, limits = $4, revision = $5, agent_limits = $6 \
             where uid = $1",
            tenant.uid.0,
            tenant.name,
            days(tenant.max_key_age),
            Json(tenant.limits) as _,
            tenant.revision.0,
            Json(tenant.agent_limits) as _,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Marks a tenant as deleted, revokes its keys, and records its last revision.
    pub async fn delete_tenant(
        &mut self,
        tenant: &Tenant,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "with ended as (update tenants set deleted_at = $2, revision = $3 where uid = $1 returning slug),
            revoked as (update api_keys set revoked_at = $2 where tenant = $1 and revoked_at is null)
            insert into retired_tenants (slug, last_revision) select slug, $3 from ended
            on conflict (slug) do update set last_revision = excluded.last_revision",
            tenant.uid.0,
            now,
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }
}
