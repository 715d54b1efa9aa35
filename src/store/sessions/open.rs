//! Opening sessions, many in one statement.

use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::ids::{AgentId, PrincipalId, SessionUid, TenantId};
use crate::model::label::LabelsDigest;
use crate::model::scope::Revision;
use crate::model::session::SessionHolder;
use crate::store::{Store, StoreError};

/// A session to be opened.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Hash of its id.
    pub hash: [u8; 32],
    /// Identity.
    pub uid: SessionUid,
    /// Tenant of the agent.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The principal that opens it.
    pub principal: Option<PrincipalId>,
    /// The holder that it is counted for.
    pub holder: SessionHolder,
    /// The negotiated protocol revision.
    pub version: String,
    /// Name of the client, as sent by it.
    pub client_name: String,
    /// Version of the client, as sent by it.
    pub client_version: String,
    /// Capabilities of the client, as JSON.
    pub capabilities: String,
    /// The labels of the caller.
    pub labels: LabelsDigest,
    /// Current time.
    pub now: OffsetDateTime,
}

/// Result of opening a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenOutcome {
    /// It was opened when the agent's scope had this revision.
    Opened(Revision),
    /// The holder has reached the maximum.
    Full,
    /// The agent does not exist any more.
    NoAgent,
}

/// What became of a session that was to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedSession {
    /// Whether it was opened.
    pub outcome: OpenOutcome,
    /// The open sessions of its holder with the agent before all of them, as counted or as known.
    pub counted: i64,
    /// The same with it and those before it.
    pub open: i64,
}

impl Store {
    /// Opens sessions and creates their heads, each unless its holder has `most` open sessions by then. These are counted,
    /// unless `known` says how many there are. Concurrent calls may exceed this. Returns what became of each, in order.
    ///
    /// A session that is open already is returned as opened: if the connection is lost, the statement is repeated, and
    /// its first execution may have been committed.
    pub async fn open_sessions(
        &self,
        new: &[Arc<SessionRow>],
        known: &[Option<i64>],
        most: i64,
    ) -> Result<Vec<PlacedSession>, StoreError> {
        let uids = column(new, |row| row.uid.0);
        let hashes = column(new, |row| &row.hash[..]);
        let tenants = column(new, |row| row.tenant.0);
        let agents = column(new, |row| row.agent.0);
        let principals = column(new, |row| row.principal.map(|principal| principal.0));
        let holders = column(new, |row| row.holder.0);
        let versions = column(new, |row| row.version.as_str());
        let client_names = column(new, |row| row.client_name.as_str());
        let client_versions = column(new, |row| row.client_version.as_str());
        let capabilities = column(new, |row| row.capabilities.as_str());
        let times = column(new, |row| row.now);
        let labels = column(new, |row| i64::from_be_bytes(row.labels.0));
        let placed = self.run_repeatable(async |connection| {
            sqlx::query!(
                r#"with asked as materialized (
                    select asked.*,
                        (select s.since_revision from sessions s where s.uid = asked.uid) as opened_since
                    from unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[],
                        $7::text[], $8::text[], $9::text[], $10::text[], $11::timestamptz[], $13::bigint[], $14::bigint[]) with ordinality
                    as asked (uid, hash, tenant, agent, principal, holder,
                        version, client_name, client_version, capabilities, now, labels, known, place)
                ),
                holders as materialized (
                    select tenant, agent, holder,
                        (
                            select h.revision from agents a join heads h on h.scope = a.uid
                            where a.tenant = asked.tenant and a.uid = asked.agent and a.deleted_at is null
                        ) as revision,
                        max(known) is not null as is_known,
                        coalesce(max(known), (
                            select count(*) from (
                                select from sessions s where s.agent = asked.agent and s.ended_at is null
                                and coalesce(s.holder, s.principal, '00000000-0000-0000-0000-000000000000'::uuid)
                                    = asked.holder
                                limit $12
                            ) as present
                        )) as counted
                    from asked group by tenant, agent, holder
                ),
                placed as materialized (
                    select asked.*, holders.revision,
                        counted, counted + count(*) filter (where opened_since is null or is_known)
                            over (partition by tenant, agent, holder order by place) as open
                    from asked join holders using (tenant, agent, holder)
                ),
                opened as (
                    insert into sessions (uid, hash, tenant, agent, principal, version, client_name,
                        client_version, capabilities, since_revision, created_at, used_at, holder, labels_digest)
                    select uid, hash, tenant, agent, principal, version, client_name,
                        client_version, capabilities, revision, now, now, holder, labels
                    from placed where opened_since is null and revision is not null and open <= $12
                    on conflict (uid) do nothing
                    returning uid
                ),
                head as (insert into heads (scope, revision, floor) select uid, 1, 1 from opened)
                select revision is not null as "agent!",
                    coalesce(opened_since, case when open <= $12 then revision end) as since,
                    counted as "counted!", open as "open!"
                from placed order by place"#,
                &uids,
                &hashes as &[&[u8]],
                &tenants,
                &agents,
                &principals as &[Option<Uuid>],
                &holders,
                &versions as &[&str],
                &client_names as &[&str],
                &client_versions as &[&str],
                &capabilities as &[&str],
                &times,
                most,
                &labels,
                known as &[Option<i64>],
            )
            .fetch_all(connection)
            .await
        });
        let outcome = |agent: bool, since: Option<i64>| match since {
            Some(since) => OpenOutcome::Opened(Revision(since)),
            None if agent => OpenOutcome::Full,
            None => OpenOutcome::NoAgent,
        };
        let placed = placed.await?.into_iter();
        let placed = placed.map(|row| PlacedSession {
            outcome: outcome(row.agent, row.since),
            counted: row.counted,
            open: row.open,
        });
        Ok(placed.collect())
    }
}

fn column<'r, T>(rows: &'r [Arc<SessionRow>], value: impl Fn(&'r SessionRow) -> T) -> Vec<T> {
    rows.iter().map(|row| value(row)).collect()
}
