//! Tenants.

use sqlx::types::Json;
use time::OffsetDateTime;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::agent::Tenant;
use crate::model::ids::{Slug, TenantId};
use crate::model::limits::UseLimits;
use crate::model::scope::Revision;

struct Row {
    uid: uuid::Uuid,
    slug: String,
    name: String,
    limits: Json<UseLimits>,
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
            limits: row.limits.0,
            revision: Revision(row.revision),
            created_at: row.created_at,
        })
    }
}

impl Store {
    /// The living tenant of this slug.
    pub async fn tenant(&self, slug: &Slug) -> Result<Option<Tenant>, StoreError> {
        let row = self
            .run(async |connection| {
                sqlx::query_as!(
        Row,
        r#"select uid, slug, name, limits as "limits: Json<UseLimits>", revision, created_at from tenants
            where slug = $1 and deleted_at is null"#,
        slug.as_str(),
    )
    .fetch_optional(connection)
    .await
            })
            .await?;
        row.map(Tenant::try_from).transpose()
    }

    /// Living tenants after a slug, in byte order.
    pub async fn tenants(&self, after: &str, limit: i64) -> Result<Vec<Tenant>, StoreError> {
        let rows = self
            .run(async |connection| {
                sqlx::query_as!(
                    Row,
                    r#"select uid, slug, name, limits as "limits: Json<UseLimits>", revision, created_at from tenants
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

impl Write {
    /// The living tenant of this slug, as this transaction sees it.
    pub async fn tenant(&mut self, slug: &Slug) -> Result<Option<Tenant>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"select uid, slug, name, limits as "limits: Json<UseLimits>", revision, created_at from tenants
            where slug = $1 and deleted_at is null"#,
            slug.as_str(),
        )
        .fetch_optional(self.connection())
        .await?;
        row.map(Tenant::try_from).transpose()
    }

    /// The last revision of an earlier tenant of this slug; 0 where there was none.
    pub async fn retired_tenant(&mut self, slug: &Slug) -> Result<Revision, StoreError> {
        let last =
            sqlx::query_scalar!("select last_revision from retired_tenants where slug = $1", slug.as_str())
                .fetch_optional(self.connection())
                .await?;
        Ok(Revision(last.unwrap_or(0)))
    }

    /// Adds a tenant.
    pub async fn insert_tenant(&mut self, tenant: &Tenant) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into tenants (uid, slug, name, limits, revision, created_at) values ($1, $2, $3, $4, $5, $6)",
            tenant.uid.0,
            tenant.slug.as_str(),
            tenant.name,
            Json(tenant.limits) as _,
            tenant.revision.0,
            tenant.created_at,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Writes a tenant's name and limits.
    pub async fn update_tenant(&mut self, tenant: &Tenant) -> Result<(), StoreError> {
        sqlx::query!(
            "update tenants set name = $2, limits = $3, revision = $4 where uid = $1",
            tenant.uid.0,
            tenant.name,
            Json(tenant.limits) as _,
            tenant.revision.0
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Ends a tenant and every key of it, and remembers where its revisions ended.
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
