//! Leases of connections: one replica at a time watches the content of a connection, by the clock of the database.

use std::time::Duration;

use uuid::Uuid;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::ConnectionId;

/// A lease of a connection, as a replica holds or held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionLease {
    /// The connection.
    pub connection: ConnectionId,
    /// The replica.
    pub holder: Uuid,
    /// Higher than that of each earlier holder.
    pub fence: i64,
}

/// A lease that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    /// The lease.
    pub lease: ConnectionLease,
    /// Differs when the subjects that are recorded for the connection differ.
    pub interest: i64,
}

impl Store {
    /// Takes the leases of these connections that are free or expired, keeps those that `holder` has, extends all of them to
    /// `duration` from now on if `extend`, and gives back its others. Returns those that it holds.
    pub async fn keep_leases(
        &self,
        holder: Uuid,
        connections: &[ConnectionId],
        extend: bool,
        duration: Duration,
    ) -> Result<Vec<HeldLease>, StoreError> {
        let connections: Vec<_> = connections.iter().map(|connection| connection.0).collect();
        let seconds = duration.as_secs_f64();
        let rows = self
            .run(async |connection| {
                sqlx::query!(
                    r#"with created as (
                        insert into leases (connection, holder, fence, expires_at)
                        select uid, $1, 1, clock_timestamp() + make_interval(secs => $4)
                        from connections where uid = any($2)
                        on conflict (connection) do nothing
                        returning connection, fence, interest
                    ),
                    free as (
                        select connection from leases
                        where connection = any($2) and holder is distinct from $1
                        and (holder is null or expires_at <= clock_timestamp())
                        for update skip locked
                    ),
                    taken as (
                        update leases l
                        set holder = $1, fence = l.fence + 1, expires_at = clock_timestamp() + make_interval(secs => $4)
                        from free where l.connection = free.connection
                        returning l.connection, l.fence, l.interest
                    ),
                    extended as (
                        update leases set expires_at = clock_timestamp() + make_interval(secs => $4)
                        where holder = $1 and connection = any($2) and $3
                    ),
                    given_back as (
                        update leases set holder = null where holder = $1 and connection <> all($2)
                    )
                    select connection as "connection!", fence as "fence!", interest as "interest!" from created
                    union all select connection, fence, interest from taken
                    union all select connection, fence, interest from leases
                    where holder = $1 and connection = any($2)"#,
                    holder,
                    &connections,
                    extend,
                    seconds,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let held = rows.into_iter().map(|row| {
            let connection = ConnectionId(row.connection);
            let lease = ConnectionLease { connection, holder, fence: row.fence };
            HeldLease { lease, interest: row.interest }
        });
        Ok(held.collect())
    }
}

impl Write {
    /// Whether a lease is still held; if so, until the end of the transaction, since others skip its locked row. What depends on a lease is written only then.
    pub async fn has_lease(&mut self, lease: &ConnectionLease) -> Result<bool, StoreError> {
        let held = sqlx::query_scalar!(
            r#"select true as "held!" from leases
            where connection = $1 and holder = $2 and fence = $3 and expires_at > clock_timestamp()
            for key share"#,
            lease.connection.0,
            lease.holder,
            lease.fence,
        );
        Ok(held.fetch_optional(self.connection()).await?.is_some())
    }
}
