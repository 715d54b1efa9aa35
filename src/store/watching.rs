//! What streams of all replicas are subscribed to of content that comes from connections.

use std::time::Duration;

use uuid::Uuid;

use super::columns::hash;
use super::watched::FoundDigest;
use super::{Store, StoreError};
use crate::model::ids::{AgentId, AgentRef, ConnectionId, TenantId};
use crate::model::variant::Variant;

/// What is watched: the content of a URI of an agent.
pub type WatchedSubject = (AgentRef, Variant);

impl Store {
    /// Records that a replica has streams that are subscribed to these subjects, whose content comes from these connections.
    /// What the replica has recorded expires after `lifetime`, unless it is [extended](Self::extend_watching).
    pub async fn record_watching(
        &self,
        replica: Uuid,
        subjects: &[(WatchedSubject, ConnectionId)],
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let columns = Columns::of(subjects.iter().map(|(subject, _)| subject));
        let connections: Vec<_> = subjects.iter().map(|(_, connection)| connection.0).collect();
        let seconds = lifetime.as_secs_f64();
        let insert = async |connection: &mut sqlx::PgConnection| {
            sqlx::query!(
                "with replicas as (
                    insert into watchers (replica, expires_at)
                    values ($1, clock_timestamp() + make_interval(secs => $2))
                    on conflict (replica) do update set expires_at = excluded.expires_at
                ),
                added as (
                    insert into watching (replica, tenant, agent, uri, connection)
                    select $1, new.tenant, new.agent, new.uri, new.connection
                    from unnest($3::uuid[], $4::uuid[], $5::text[], $6::uuid[]) as new (tenant, agent, uri, connection)
                    where exists (select from connections c where c.uid = new.connection)
                    and exists (select from agents a where a.tenant = new.tenant and a.uid = new.agent)
                    on conflict (tenant, agent, uri, replica) do update set connection = excluded.connection
                    returning connection
                )
                insert into leases (connection, fence, expires_at, interest)
                select connection, 1, clock_timestamp(), 1 from added group by connection order by connection
                on conflict (connection) do update set interest = leases.interest + 1",
                replica,
                seconds,
                &columns.tenants,
                &columns.agents,
                &columns.uris,
                &connections,
            )
            .execute(connection)
            .await
        };
        self.run(insert).await.map(|_| ())
    }

    /// Records that a replica has no streams any more that are subscribed to these subjects.
    pub async fn forget_watching(
        &self,
        replica: Uuid,
        subjects: &[WatchedSubject],
    ) -> Result<(), StoreError> {
        let columns = Columns::of(subjects);
        let delete = async |connection: &mut sqlx::PgConnection| {
            sqlx::query!(
                "with gone as (
                    delete from watching w using unnest($2::uuid[], $3::uuid[], $4::text[]) as old (tenant, agent, uri)
                    where w.replica = $1 and w.tenant = old.tenant and w.agent = old.agent and w.uri = old.uri
                    returning w.connection
                ),
                concerned as (
                    select connection from leases where connection in (select connection from gone)
                    order by connection for no key update
                )
                update leases l set interest = l.interest + 1 from concerned c where l.connection = c.connection",
                replica,
                &columns.tenants,
                &columns.agents,
                &columns.uris,
            )
            .execute(connection)
            .await
        };
        self.run(delete).await.map(|_| ())
    }

    /// Extends what a replica has recorded, and removes what others have let expire. Returns false if it has expired itself:
    /// replicas that watch may have dropped it, and look at it again only once it is recorded again.
    pub async fn extend_watching(&self, replica: Uuid, lifetime: Duration) -> Result<bool, StoreError> {
        let seconds = lifetime.as_secs_f64();
        let extend = async |connection: &mut sqlx::PgConnection| {
            sqlx::query!(
                "with expired as (
                    select replica from watchers where expires_at <= clock_timestamp() and replica <> $1
                    for update skip locked
                ),
                gone as (delete from watchers w using expired e where w.replica = e.replica),
                concerned as (
                    select connection from leases where connection in (
                        select w.connection from watching w join expired e on e.replica = w.replica
                    ) order by connection for no key update
                ),
                raised as (
                    update leases l set interest = l.interest + 1 from concerned c where l.connection = c.connection
                )
                update watchers set expires_at = clock_timestamp() + make_interval(secs => $2)
                where replica = $1 and expires_at > clock_timestamp()",
                replica,
                seconds,
            )
            .execute(connection)
            .await
        };
        self.run(extend).await.map(|done| done.rows_affected() > 0)
    }

    /// What is watched of a connection, each with what was found last: of more than `most`, as many of each tenant.
    pub async fn watching(
        &self,
        connection: ConnectionId,
        most: i64,
    ) -> Result<Vec<(WatchedSubject, Option<FoundDigest>)>, StoreError> {
        let rows = self
            .read(async |reader| {
                sqlx::query!(
                    r#"select w.tenant, w.agent, w.uri, f.digest as "digest?", f.fence as "fence?"
                    from watching w
                    join watchers r on r.replica = w.replica and r.expires_at > clock_timestamp()
                    left join watched f on f.tenant = w.tenant and f.agent = w.agent and f.uri = w.uri
                    where w.connection = $1 group by w.tenant, w.agent, w.uri, f.digest, f.fence
                    order by row_number() over (partition by w.tenant order by w.agent, w.uri), w.tenant limit $2"#,
                    connection.0,
                    most,
                )
                .fetch_all(reader)
                .await
            })
            .await?;
        let subject = |tenant, agent, uri: &str| {
            let variant = Variant::parse(uri).ok_or(StoreError::Unreadable("watched URI"))?;
            Ok::<_, StoreError>((AgentRef { tenant: TenantId(tenant), uid: AgentId(agent) }, variant))
        };
        let found = rows.into_iter().map(|row| {
            let found = match (row.digest, row.fence) {
                (Some(digest), Some(fence)) => Some(FoundDigest { digest: hash(digest)?, fence }),
                _ => None,
            };
            Ok((subject(row.tenant, row.agent, &row.uri)?, found))
        });
        found.collect()
    }
}

/// Subjects as one array per column.
struct Columns {
    tenants: Vec<Uuid>,
    agents: Vec<Uuid>,
    uris: Vec<String>,
}

impl Columns {
    fn of<'s>(subjects: impl IntoIterator<Item = &'s WatchedSubject>) -> Self {
        let mut columns = Self { tenants: Vec::new(), agents: Vec::new(), uris: Vec::new() };
        for (agent, variant) in subjects {
            columns.tenants.push(agent.tenant.0);
            columns.agents.push(agent.uid.0);
            columns.uris.push(variant.to_string());
        }
        columns
    }
}
