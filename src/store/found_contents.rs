//! What was found last of watched content, stored for reads of all replicas until it is too old.

use std::time::Duration;

use bytes::Bytes;
use content_source::{Content, Validator};
use time::OffsetDateTime;

use super::leases::ConnectionLease;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::ConnectionId;
use crate::model::scope::Revision;
use crate::store::watching::WatchedSubject;

/// What content was found at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundAt {
    /// The connection that it was fetched from.
    pub connection: ConnectionId,
    /// The revision of the connection.
    pub connection_revision: Revision,
    /// The revision of the agent that made it known.
    pub revision: Revision,
}

/// Content that was found.
#[derive(Debug, Clone)]
pub struct FoundContents<C> {
    /// The contents: one for a file, several for a directory.
    pub contents: C,
    /// What they are revalidated with.
    pub validator: Option<Validator>,
    /// How long ago they were fetched.
    pub age: Duration,
}

impl Store {
    /// The content of a subject that was found at this place, unless it is too old.
    pub async fn found_contents(
        &self,
        (agent, variant): &WatchedSubject,
        at: FoundAt,
    ) -> Result<Option<FoundContents<Vec<Content>>>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select validator, names as "names: Vec<Option<String>>",
                    mime_types as "mime_types: Vec<Option<String>>", modified as "modified: Vec<Option<OffsetDateTime>>",
                    bodies, extract(epoch from clock_timestamp() - fetched_at)::double precision as "age!"
                    from found_contents
                    where tenant = $1 and agent = $2 and uri = $3 and connection = $4 and connected = $5
                    and revision = $6 and expires_at > clock_timestamp()"#,
                    agent.tenant.0,
                    agent.uid.0,
                    variant.to_string(),
                    at.connection.0,
                    at.connection_revision.0,
                    at.revision.0,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(row) = row else { return Ok(None) };
        let parts = row.names.into_iter().zip(row.mime_types).zip(row.modified).zip(row.bodies);
        let contents = parts.map(|(((name, mime_type), modified), bytes)| Content {
            name,
            mime_type,
            modified,
            bytes: Bytes::from(bytes),
        });
        let age = Duration::try_from_secs_f64(row.age).unwrap_or_default();
        let validator = row.validator.map(Validator);
        Ok(Some(FoundContents { contents: contents.collect(), validator, age }))
    }

    /// Removes what is too old of the content found by the holder of a lease, or is watched no more. Returns the size of the
    /// rest; none if the lease is lost.
    pub async fn expire_found_contents(&self, lease: &ConnectionLease) -> Result<Option<i64>, StoreError> {
        self.run(async |connection| {
            sqlx::query_scalar!(
                r#"with held as (
                    select connection from leases
                    where connection = $1 and holder = $2 and fence = $3 and expires_at > clock_timestamp()
                ),
                gone as (
                    delete from found_contents f using held where f.connection = held.connection and (
                        f.expires_at <= clock_timestamp() or not exists (
                            select from watching w where w.tenant = f.tenant and w.agent = f.agent and w.uri = f.uri
                        )
                    ) returning f.size
                )
                select (
                    coalesce((select sum(size) from found_contents f where f.connection = held.connection), 0)
                    - coalesce((select sum(size) from gone), 0)
                )::bigint as "size!" from held"#,
                lease.connection.0,
                lease.holder,
                lease.fence,
            )
            .fetch_optional(connection)
            .await
        })
        .await
    }

    /// Removes content that is too old, of any holder.
    pub(super) async fn purge_found_contents(&self, most: i64) -> Result<bool, StoreError> {
        let done = self
            .run_planned(async |connection| {
                sqlx::query!(
                    "delete from found_contents where (tenant, agent, uri) in (
                        select tenant, agent, uri from found_contents where expires_at <= clock_timestamp()
                        order by expires_at limit $1 for update skip locked
                    )",
                    most,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(done.rows_affected() > 0)
    }
}

impl Write {
    /// Stores the content of a subject for `lifetime` from when it was fetched.
    pub async fn put_found_contents(
        &mut self,
        (agent, variant): &WatchedSubject,
        at: FoundAt,
        found: &FoundContents<&[Content]>,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let contents = found.contents;
        let names: Vec<_> = contents.iter().map(|content| content.name.as_deref()).collect();
        let mime_types: Vec<_> = contents.iter().map(|content| content.mime_type.as_deref()).collect();
        let modified: Vec<_> = contents.iter().map(|content| content.modified).collect();
        let bodies: Vec<&[u8]> = contents.iter().map(|content| &content.bytes[..]).collect();
        sqlx::query!(
            "insert into found_contents (tenant, agent, uri, connection, connected, revision, fetched_at, expires_at,
                validator, size, names, mime_types, modified, bodies)
            values ($1, $2, $3, $4, $5, $6, clock_timestamp() - make_interval(secs => $7),
                clock_timestamp() + make_interval(secs => $8), $9, $10, $11, $12, $13, $14)
            on conflict (tenant, agent, uri) do update set connection = excluded.connection,
                connected = excluded.connected, revision = excluded.revision, fetched_at = excluded.fetched_at,
                expires_at = excluded.expires_at, validator = excluded.validator, size = excluded.size,
                names = excluded.names, mime_types = excluded.mime_types, modified = excluded.modified,
                bodies = excluded.bodies",
            agent.tenant.0,
            agent.uid.0,
            variant.to_string(),
            at.connection.0,
            at.connection_revision.0,
            at.revision.0,
            found.age.as_secs_f64(),
            lifetime.saturating_sub(found.age).as_secs_f64(),
            found.validator.as_ref().map(|validator| validator.0.as_slice()),
            size(contents),
            &names as &[Option<&str>],
            &mime_types as &[Option<&str>],
            &modified as &[Option<OffsetDateTime>],
            &bodies as &[&[u8]],
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }
}

/// The size of contents in bytes, with what is stored beside them.
pub fn size(contents: &[Content]) -> i64 {
    let of = |content: &Content| {
        let texts = [&content.name, &content.mime_type].map(|text| text.as_ref().map_or(0, String::len));
        content.bytes.len() + texts.iter().sum::<usize>() + 64
    };
    i64::try_from(contents.iter().map(of).sum::<usize>()).unwrap_or(i64::MAX)
}
