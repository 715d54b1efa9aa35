//! API keys, of which only the hashes are stored.

use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::columns::labels;
use super::tenants::key_age;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::agent::KeyAge;
use crate::model::caller::{Credential, CredentialKind, KeyScope, Reach};
use crate::model::client_address::Networks;
use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
use crate::model::key::{ApiKey, KeyHash};
use crate::model::label::{Label, Labels};
use crate::model::limits::{KeyLimits, RateLimit};
use crate::model::scope::Revision;

struct Row {
    uid: Uuid,
    tenant: Uuid,
    agent: Option<Uuid>,
    display: String,
    name: String,
    scopes: Vec<String>,
    labels: Vec<String>,
    limits: Json<RateLimit>,
    owner_limits: Json<RateLimit>,
    principal: Uuid,
    maker: Option<Uuid>,
    revision: i64,
    created_at: OffsetDateTime,
    asked_expiry: Option<OffsetDateTime>,
    max_age: Option<i32>,
    networks: Vec<String>,
    revoked_at: Option<OffsetDateTime>,
    last_used_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for ApiKey {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            uid: KeyId(row.uid),
            tenant: TenantId(row.tenant),
            agent: row.agent.map(AgentId),
            display: row.display,
            name: row.name,
            scopes: scopes(&row.scopes)?,
            labels: labels(Some(&row.labels))?,
            limits: KeyLimits { operator: row.limits.0, owner: row.owner_limits.0 },
            principal: PrincipalId(row.principal),
            maker: row.maker.map(PrincipalId),
            revision: Revision(row.revision),
            created_at: row.created_at,
            expires_at: KeyAge::cap(row.created_at, row.asked_expiry, key_age(row.max_age)?),
            asked_expiry: row.asked_expiry,
            networks: networks(&row.networks)?,
            revoked_at: row.revoked_at,
            last_used_at: row.last_used_at,
        })
    }
}

/// A key that expires soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringKey {
    /// The key.
    pub key: KeyId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The slug of its agent; `None` for an owner key.
    pub agent: Option<String>,
    /// When it expires, by its own setting.
    pub expires_at: OffsetDateTime,
}

/// The columns that determine the grant of a key.
pub(super) struct CredentialRow {
    pub(super) uid: Uuid,
    pub(super) principal: Uuid,
    pub(super) agent: Option<Uuid>,
    pub(super) scopes: Vec<String>,
    pub(super) labels: Vec<String>,
    pub(super) networks: Vec<String>,
    pub(super) created_at: OffsetDateTime,
    pub(super) expires_at: Option<OffsetDateTime>,
    pub(super) limits: Json<RateLimit>,
    pub(super) owner_limits: Json<RateLimit>,
    pub(super) max_age: Option<i32>,
}

impl CredentialRow {
    /// The credential of a tenant's key.
    pub(super) fn grant(self, tenant: TenantId) -> Result<Credential, StoreError> {
        let (kind, reach) = match self.agent {
            Some(agent) => (CredentialKind::AgentKey, Reach::Agents(vec![AgentId(agent)])),
            None => (CredentialKind::OwnerKey, Reach::Tenant),
        };
        Ok(Credential {
            kind,
            key: KeyId(self.uid),
            principal: PrincipalId(self.principal),
            tenant,
            reach,
            networks: networks(&self.networks)?,
            scopes: scopes(&self.scopes)?,
            labels: labels(Some(&self.labels))?,
            expires_at: KeyAge::cap(self.created_at, self.expires_at, key_age(self.max_age)?),
            limits: KeyLimits { operator: self.limits.0, owner: self.owner_limits.0 },
        })
    }
}

fn texts(labels: &Labels) -> Vec<&str> {
    labels.iter().map(Label::as_str).collect()
}

fn networks(stored: &[String]) -> Result<Networks, StoreError> {
    Networks::parse(stored.iter().map(String::as_str)).map_err(|_| StoreError::Unreadable("key networks"))
}

fn scopes(stored: &[String]) -> Result<Vec<KeyScope>, StoreError> {
    stored.iter().map(|text| KeyScope::parse(text).ok_or(StoreError::Unreadable("key scope"))).collect()
}

impl Store {
    /// The keys valid now that expire until `by`, except those whose successor is valid for longer: the first `limit` to
    /// expire, and how many there are, up to 10,000.
    pub async fn keys_expiring(
        &self,
        now: OffsetDateTime,
        by: OffsetDateTime,
        limit: i64,
    ) -> Result<(Vec<ExpiringKey>, i64), StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select k.uid as "uid!", k.tenant as "tenant!", a.slug as "agent?", k.expires_at as "expires_at!",
                        count(*) over () as "count!"
                    from (
                        (select k.uid, k.tenant, k.agent, k.principal, k.created_at, k.expires_at
                        from api_keys k
                        where k.revoked_at is null and k.expires_at > $1 and k.expires_at <= $2 and not exists (
                            select from tenants t where t.uid = k.tenant
                            and k.created_at + t.max_key_age_days * interval '24 hours' < k.expires_at
                        )
                        order by k.expires_at limit 10000)
                        union all
                        (select k.uid, k.tenant, k.agent, k.principal, k.created_at, k.created_at + t.age
                        from (
                            select uid, max_key_age_days * interval '24 hours' as age from tenants
                            where max_key_age_days is not null
                        ) t cross join lateral (
                            select k.uid, k.tenant, k.agent, k.principal, k.created_at from api_keys k
                            where k.tenant = t.uid and k.revoked_at is null
                            and k.created_at > $1 - t.age and k.created_at <= $2 - t.age
                            and (k.expires_at is null or k.expires_at > k.created_at + t.age)
                            order by k.created_at limit 10000
                        ) k
                        limit 10000)
                    ) k
                    left join agents a on a.uid = k.agent
                    where not exists (
                        select from api_keys s
                        where s.tenant = k.tenant and (s.agent = k.agent or s.agent is null and k.agent is null)
                        and s.principal = k.principal and s.created_at > k.created_at
                        and s.revoked_at is null and (s.expires_at is null or s.expires_at > k.expires_at)
                    )
                    order by k.expires_at, k.uid limit $3"#,
                    now,
                    by,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let count = rows.first().map_or(0, |row| row.count);
        let keys = rows.into_iter().map(|row| ExpiringKey {
            key: KeyId(row.uid),
            tenant: TenantId(row.tenant),
            agent: row.agent,
            expires_at: row.expires_at,
        });
        Ok((keys.collect(), count))
    }

    /// Reads a key.
    pub async fn key(&self, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query_as!(
                    Row,
                    r#"select k.uid, k.tenant, k.agent, k.display, k.name, k.scopes, k.labels, k.limits as "limits: Json<RateLimit>",
                     k.owner_limits as "owner_limits: Json<RateLimit>", k.principal, k.maker, k.revision, k.created_at, k.expires_at as asked_expiry,
                     t.max_key_age_days as max_age, k.networks, k.revoked_at, k.last_used_at
                     from api_keys k join tenants t on t.uid = k.tenant where k.uid = $1"#,
                    key.0,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        row.map(ApiKey::try_from).transpose()
    }

    /// The keys of an agent, or a tenant's owner keys, after a key, oldest first.
    pub async fn keys(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_as!(
                    Row,
                    r#"select k.uid, k.tenant, k.agent, k.display, k.name, k.scopes, k.labels, k.limits as "limits: Json<RateLimit>",
                     k.owner_limits as "owner_limits: Json<RateLimit>", k.principal, k.maker, k.revision, k.created_at, k.expires_at as asked_expiry,
                     t.max_key_age_days as max_age, k.networks, k.revoked_at, k.last_used_at
                     from api_keys k join tenants t on t.uid = k.tenant 
                     where k.tenant = $1 and k.agent is not distinct from $2 and k.uid > $3 order by k.uid limit $4"#,
                    tenant.0,
                    agent.map(|agent| agent.0),
                    after,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(ApiKey::try_from).collect()
    }

    /// Records when keys were last used. Not logged as a change, since nothing caches it.
    pub async fn record_key_uses(&self, uses: &[(KeyId, OffsetDateTime)]) -> Result<(), StoreError> {
        let keys: Vec<_> = uses.iter().map(|(key, _)| key.0).collect();
        let times: Vec<_> = uses.iter().map(|(_, at)| *at).collect();
        self.run(async |connection| {
            sqlx::query!(
                "update api_keys set last_used_at = used.at \
         from (select * from unnest($1::uuid[], $2::timestamptz[]) as used (uid, at) order by uid) as used \
         where api_keys.uid = used.uid and (last_used_at is null or last_used_at < used.at)",
                &keys,
                &times,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }
}

impl Store {
    /// Reads the credential of a key with the revision of its tenant; `None` if it is revoked or belongs to another
    /// tenant.
    pub async fn credential(
        &self,
        tenant: TenantId,
        hash: KeyHash,
    ) -> Result<Option<(Revision, Credential)>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select k.uid, k.principal, k.agent, k.scopes, k.labels, k.networks, k.created_at, k.expires_at,
                     k.limits as "limits: Json<RateLimit>", k.owner_limits as "owner_limits: Json<RateLimit>",
                     t.max_key_age_days as max_age, h.revision
                     from api_keys k join tenants t on t.uid = k.tenant join heads h on h.scope = k.tenant
                     where k.tenant = $1 and k.hash = $2 and k.revoked_at is null"#,
                    tenant.0,
                    &hash.0[..],
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(row) = row else { return Ok(None) };
        let credential = CredentialRow {
            uid: row.uid,
            principal: row.principal,
            agent: row.agent,
            scopes: row.scopes,
            labels: row.labels,
            networks: row.networks,
            created_at: row.created_at,
            expires_at: row.expires_at,
            limits: row.limits,
            owner_limits: row.owner_limits,
            max_age: row.max_age,
        };
        Ok(Some((Revision(row.revision), credential.grant(tenant)?)))
    }
}

impl Write {
    /// Number of keys of an agent, or owner keys of a tenant, that are neither revoked nor expired.
    pub async fn active_keys(
        &mut self,
        tenant: TenantId,
        agent: Option<AgentId>,
        now: OffsetDateTime,
    ) -> Result<i64, StoreError> {
        let active = sqlx::query_scalar!(
            r#"select count(*) as "active!" from api_keys k join tenants t on t.uid = k.tenant
            where k.tenant = $1 and k.agent is not distinct from $2 and k.revoked_at is null
            and coalesce(
                least(k.expires_at, k.created_at + t.max_key_age_days * interval '24 hours') > $3, true
            )"#,
            tenant.0,
            agent.map(|agent| agent.0),
            now,
        )
        .fetch_one(self.connection())
        .await?;
        Ok(active)
    }

    /// Inserts a key.
    pub async fn insert_key(&mut self, key: &ApiKey, hash: KeyHash) -> Result<(), StoreError> {
        let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str().to_owned()).collect();
        sqlx::query!(
            "insert into api_keys \
             (uid, tenant, agent, hash, display, name, scopes, principal, revision, created_at, expires_at, networks, \
             limits, owner_limits, maker, labels) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
            key.uid.0,
            key.tenant.0,
            key.agent.map(|agent| agent.0),
            &hash.0[..],
            key.display,
            key.name,
            &scopes,
            key.principal.0,
            key.revision.0,
            key.created_at,
            key.asked_expiry,
            &key.networks.to_texts(),
            Json(key.limits.operator) as _,
            Json(key.limits.owner) as _,
            key.maker.map(|maker| maker.0),
            &texts(&key.labels) as &[&str],
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Reads a key in this transaction.
    pub async fn key(&mut self, tenant: TenantId, key: KeyId) -> Result<Option<ApiKey>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"select k.uid, k.tenant, k.agent, k.display, k.name, k.scopes, k.labels, k.limits as "limits: Json<RateLimit>",
                     k.owner_limits as "owner_limits: Json<RateLimit>", k.principal, k.maker, k.revision, k.created_at, k.expires_at as asked_expiry,
                     t.max_key_age_days as max_age, k.networks, k.revoked_at, k.last_used_at
                     from api_keys k join tenants t on t.uid = k.tenant where k.tenant = $1 and k.uid = $2"#,
            tenant.0,
            key.0,
        )
        .fetch_optional(self.connection())
        .await?;
        row.map(ApiKey::try_from).transpose()
    }

    /// Updates the limits and the labels of a key.
    pub async fn update_key(&mut self, key: &ApiKey) -> Result<(), StoreError> {
        sqlx::query!(
            "update api_keys set limits = $3, owner_limits = $4, labels = $5, revision = $6 \
             where tenant = $1 and uid = $2",
            key.tenant.0,
            key.uid.0,
            Json(key.limits.operator) as _,
            Json(key.limits.owner) as _,
            &texts(&key.labels) as &[&str],
            key.revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Revokes a key, or makes it expire.
    pub async fn end_key(
        &mut self,
        tenant: TenantId,
        key: KeyId,
        revision: Revision,
        end: KeyEnd,
    ) -> Result<(), StoreError> {
        let (revoked, expires) = match end {
            KeyEnd::Revoked(at) => (Some(at), None),
            KeyEnd::Expires(at) => (None, Some(at)),
        };
        sqlx::query!(
            "update api_keys set revision = $3, revoked_at = coalesce($4, revoked_at), \
             expires_at = least(expires_at, $5) where tenant = $1 and uid = $2",
            tenant.0,
            key.0,
            revision.0,
            revoked,
            expires,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }
}

impl Write {
    /// Revokes the active keys that a principal created, and transitively those created with them; returns
    /// their ids.
    pub async fn revoke_keys_made_by(
        &mut self,
        tenant: TenantId,
        maker: PrincipalId,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<Vec<KeyId>, StoreError> {
        let revoked = sqlx::query_scalar!(
            "with recursive made as (
                select uid, principal from api_keys where tenant = $1 and maker = $2
                union
                select k.uid, k.principal from api_keys k join made m on k.maker = m.principal where k.tenant = $1
            )
            update api_keys k set revoked_at = $4, revision = $3 from made
            where k.tenant = $1 and k.uid = made.uid and k.revoked_at is null
            returning k.uid",
            tenant.0,
            maker.0,
            revision.0,
            now,
        )
        .fetch_all(self.connection())
        .await?;
        Ok(revoked.into_iter().map(KeyId).collect())
    }
}

/// How a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEnd {
    /// Revoked at this time.
    Revoked(OffsetDateTime),
    /// Expires at this time at the latest.
    Expires(OffsetDateTime),
}
