//! Connections and their encrypted secrets.

use std::collections::BTreeMap;

use content_source::Kind;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as KindError, StrDeserializer};
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::connection::{ConnectionLimits, Sealed, StoredConnection, StoredSecret, Tenants};
use crate::model::ids::{ConnectionId, Slug, TenantId};
use crate::model::scope::{Revision, Scope};

struct Row {
    head: i64,
    uid: Uuid,
    slug: String,
    kind: String,
    for_all: bool,
    tenant_slugs: Vec<String>,
    tenant_uids: Vec<Uuid>,
    settings: String,
    secret_names: Vec<String>,
    secret_keys: Vec<String>,
    secrets: Vec<Vec<u8>>,
    secret_times: Vec<OffsetDateTime>,
    limits: Json<ConnectionLimits>,
    enabled: bool,
    revision: i64,
    created_at: OffsetDateTime,
}

/// Selects connections, with the head of their scope. Deleted tenants are left out.
macro_rules! connections {
    ($rest:literal, $($argument:expr),*) => {
        sqlx::query_as!(
            Row,
            r#"select (select revision from heads where scope = '00000000-0000-0000-0000-000000000001') as "head!",
            uid, slug, kind, tenants is null as "for_all!",
            array(select t.slug from tenants t where t.uid = any(c.tenants) and t.deleted_at is null order by t.slug)
                as "tenant_slugs!",
            array(select t.uid from tenants t where t.uid = any(c.tenants) and t.deleted_at is null order by t.slug)
                as "tenant_uids!",
            settings,
            array(select s.name from connection_secrets s where s.connection = c.uid order by s.name)
                as "secret_names!",
            array(select s.key_id from connection_secrets s where s.connection = c.uid order by s.name)
                as "secret_keys!",
            array(select s.sealed from connection_secrets s where s.connection = c.uid order by s.name) as "secrets!",
            array(select s.updated_at from connection_secrets s where s.connection = c.uid order by s.name)
                as "secret_times!",
            limits as "limits: Json<ConnectionLimits>", enabled, revision, created_at
            from connections c "# + $rest,
            $($argument),*
        )
    };
}

fn kind(text: &str) -> Result<Kind, StoreError> {
    let text: StrDeserializer<'_, KindError> = text.into_deserializer();
    Kind::deserialize(text).map_err(|_| StoreError::Unreadable("kind of a connection"))
}

fn slug(text: &str) -> Result<Slug, StoreError> {
    Slug::parse(text).map_err(|_| StoreError::Unreadable("connection"))
}

impl TryFrom<Row> for StoredConnection {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let tenants = if row.for_all {
            Tenants::All
        } else {
            let named = row.tenant_slugs.iter().zip(row.tenant_uids);
            let named = named.map(|(name, uid)| Ok((slug(name)?, TenantId(uid))));
            Tenants::Only(named.collect::<Result<_, StoreError>>()?)
        };
        let sealed = row.secret_keys.into_iter().zip(row.secrets).zip(row.secret_times);
        let sealed = sealed
            .map(|((key, bytes), updated_at)| StoredSecret { sealed: Sealed { key, bytes }, updated_at });
        Ok(Self {
            uid: ConnectionId(row.uid),
            slug: slug(&row.slug)?,
            kind: kind(&row.kind)?,
            tenants,
            settings: serde_json::from_str(&row.settings)
                .map_err(|_| StoreError::Unreadable("settings of a connection"))?,
            secrets: row.secret_names.into_iter().zip(sealed).collect(),
            limits: row.limits.0,
            enabled: row.enabled,
            revision: Revision(row.revision),
            created_at: row.created_at,
        })
    }
}

/// The connection that an id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionAddress {
    /// Its UUID.
    pub uid: ConnectionId,
    /// What it connects to.
    pub kind: Kind,
}

impl Store {
    /// Reads a connection, with the revision of the scope of connections.
    pub async fn look_up_connection(
        &self,
        uid: ConnectionId,
    ) -> Result<(Option<Revision>, Option<StoredConnection>), StoreError> {
        let row = self
            .read(async |connection| connections!("where uid = $1", uid.0).fetch_optional(connection).await)
            .await?;
        let head = row.as_ref().map(|row| Revision(row.head));
        Ok((head, row.map(StoredConnection::try_from).transpose()?))
    }

    /// Reads the connection with this slug.
    pub async fn connection(&self, slug: &Slug) -> Result<Option<StoredConnection>, StoreError> {
        let row = self
            .read(async |connection| {
                connections!("where slug = $1", slug.as_str()).fetch_optional(connection).await
            })
            .await?;
        row.map(StoredConnection::try_from).transpose()
    }

    /// Lists connections after a slug, in byte order; with a tenant, those that it may use.
    pub async fn stored_connections(
        &self,
        tenant: Option<TenantId>,
        after: &str,
        limit: i64,
    ) -> Result<Vec<StoredConnection>, StoreError> {
        let tenant = tenant.map(|tenant| tenant.0);
        let rows = self
            .read(async |connection| {
                connections!(
                    "where slug > $1 and ($2::uuid is null or tenants is null or $2 = any(tenants)) order by slug limit $3",
                    after,
                    tenant,
                    limit
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(StoredConnection::try_from).collect()
    }

    /// Looks up which of these connections a tenant may use.
    pub async fn connections_named(
        &self,
        tenant: TenantId,
        slugs: &[String],
    ) -> Result<BTreeMap<Slug, ConnectionAddress>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    "select uid, slug, kind from connections \
                     where slug = any($1) and (tenants is null or $2 = any(tenants))",
                    slugs,
                    tenant.0
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter()
            .map(|row| {
                let address = ConnectionAddress { uid: ConnectionId(row.uid), kind: kind(&row.kind)? };
                Ok((slug(&row.slug)?, address))
            })
            .collect()
    }

    /// A secret that is encrypted under none of these keys: what it is, and the id of its key.
    pub async fn secret_of_other_key(&self, keys: &[String]) -> Result<Option<(String, String)>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select 'the secret ' || s.name || ' of the connection ' || c.slug as "secret!", key_id as "key!"
                    from connection_secrets s join connections c on c.uid = s.connection where key_id <> all($1)
                    union all
                    select 'the secret of the hook ' || uid::text, key_id from hooks where key_id <> all($1) limit 1"#,
                    keys
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        Ok(row.map(|row| (row.secret, row.key)))
    }
}

impl Write {
    /// Locks the scope of connections and returns the revision that this write will give it.
    pub async fn lock_connections(&mut self) -> Result<Revision, StoreError> {
        // The migration creates the scope.
        self.lock(Scope::CONNECTIONS).await?.ok_or(StoreError::Unreadable("scope of connections"))
    }

    /// Reads the connection with this slug in this transaction.
    pub async fn connection_named(&mut self, slug: &Slug) -> Result<Option<StoredConnection>, StoreError> {
        let row = connections!("where slug = $1", slug.as_str()).fetch_optional(self.connection()).await?;
        row.map(StoredConnection::try_from).transpose()
    }

    /// The number of connections.
    pub async fn connection_count(&mut self) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(r#"select count(*) as "count!" from connections"#);
        Ok(count.fetch_one(self.connection()).await?)
    }

    /// The tenants with these slugs that are not deleted.
    pub async fn tenants_named(&mut self, slugs: &[String]) -> Result<BTreeMap<Slug, TenantId>, StoreError> {
        let rows =
            sqlx::query!("select slug, uid from tenants where slug = any($1) and deleted_at is null", slugs)
                .fetch_all(self.connection())
                .await?;
        rows.into_iter().map(|row| Ok((slug(&row.slug)?, TenantId(row.uid)))).collect()
    }

    /// Inserts a connection without its secrets, or replaces what may change of it.
    pub async fn put_connection(&mut self, of: &StoredConnection) -> Result<(), StoreError> {
        let tenants: Option<Vec<Uuid>> = match &of.tenants {
            Tenants::All => None,
            Tenants::Only(tenants) => Some(tenants.values().map(|tenant| tenant.0).collect()),
        };
        let settings = serde_json::Value::Object(of.settings.clone()).to_string();
        sqlx::query!(
            "insert into connections (uid, slug, kind, tenants, settings, limits, enabled, revision, created_at) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (uid) do update set tenants = excluded.tenants, \
             settings = excluded.settings, limits = excluded.limits, enabled = excluded.enabled, \
             revision = excluded.revision",
            of.uid.0,
            of.slug.as_str(),
            of.kind.as_str(),
            tenants.as_deref(),
            settings,
            Json(of.limits) as _,
            of.enabled,
            of.revision.0,
            of.created_at,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Replaces the secrets of a connection.
    pub async fn put_secrets(&mut self, of: &StoredConnection) -> Result<(), StoreError> {
        sqlx::query!("delete from connection_secrets where connection = $1", of.uid.0)
            .execute(self.connection())
            .await?;
        let names: Vec<_> = of.secrets.keys().cloned().collect();
        let keys: Vec<_> = of.secrets.values().map(|secret| secret.sealed.key.clone()).collect();
        let sealed: Vec<_> = of.secrets.values().map(|secret| secret.sealed.bytes.clone()).collect();
        let times: Vec<_> = of.secrets.values().map(|secret| secret.updated_at).collect();
        sqlx::query!(
            "insert into connection_secrets (connection, name, key_id, sealed, updated_at) \
             select $1, new.name, new.key_id, new.sealed, new.updated_at \
             from unnest($2::text[], $3::text[], $4::bytea[], $5::timestamptz[]) \
             as new (name, key_id, sealed, updated_at)",
            of.uid.0,
            &names,
            &keys,
            &sealed,
            &times,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Deletes a connection with its secrets, unless definitions refer to it; returns whether it is deleted.
    pub async fn delete_connection(&mut self, uid: ConnectionId) -> Result<bool, StoreError> {
        // Definitions of deleted agents are purged later, and read no more.
        sqlx::query!(
            "with gone as (select tenant, uid from agents where deleted_at is not null),
            resources as (
                delete from resources d using gone where d.connection = $1 and (d.tenant, d.agent) = (gone.tenant, gone.uid)
            ),
            mounts as (
                delete from mounts d using gone where d.connection = $1 and (d.tenant, d.agent) = (gone.tenant, gone.uid)
            )
            delete from templates d using gone where d.connection = $1 and (d.tenant, d.agent) = (gone.tenant, gone.uid)",
            uid.0
        )
        .execute(self.connection())
        .await?;
        // Locked first: a definition that is being written holds a lock on the connections of its completions.
        sqlx::query!("select uid from connections where uid = $1 for update", uid.0)
            .fetch_optional(self.connection())
            .await?;
        let completes = sqlx::query_scalar!(
            r#"select exists (
                select from agents a where a.deleted_at is null and (a.tenant, a.uid) in (
                    select tenant, agent from templates where completion_connections @> array[$1::uuid]
                    union all select tenant, agent from prompts where completion_connections @> array[$1::uuid]
                )
            ) as "completes!""#,
            uid.0
        );
        if completes.fetch_one(self.connection()).await? {
            return Ok(false);
        }
        let deleted = sqlx::query!("delete from connections where uid = $1", uid.0)
            .execute(self.connection())
            .await
            .map_err(StoreError::from);
        match deleted {
            Ok(_) => Ok(true),
            Err(error) if error.is_foreign_key_violation() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads connections after a slug that have a secret which is not encrypted under this key.
    pub async fn connections_of_other_keys(
        &mut self,
        key: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<StoredConnection>, StoreError> {
        let rows = connections!(
            "where slug > $1 and exists (select from connection_secrets s where s.connection = c.uid and s.key_id <> $2)
             order by slug limit $3",
            after,
            key,
            limit
        )
        .fetch_all(self.connection())
        .await?;
        rows.into_iter().map(StoredConnection::try_from).collect()
    }
}
