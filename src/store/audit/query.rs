//! Querying the audit log, newest rows first, and making checkpoints.

use std::time::Duration;

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::window::Window;
use crate::model::audit::checkpoint::{API_VERSION, ChainHead, Checkpoint, LedgerHead};
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding;
use crate::model::audit::row::{AgentFilter, AuditFilter, AuditPosition, AuditRow, timestamp};
use crate::store::pooled_connection::BEGIN_PLANNED_READ_ONLY;
use crate::store::{Store, StoreError};

impl Store {
    /// Reads the rows that match a filter, newest first, after a position.
    pub async fn audit_rows(
        &self,
        filter: &AuditFilter,
        after: Option<AuditPosition>,
        limit: i64,
    ) -> Result<Vec<AuditRow>, StoreError> {
        // Planned for the given filters, since only with these an index can be used.
        let mut tx = self.transaction(BEGIN_PLANNED_READ_ONLY).await?;
        let mut window = Window::newest(tx.connection(), filter, after).await?;
        let mut rows = select(tx.connection(), filter, after, window, limit).await?;
        let mut missing = limit - len(&rows);
        if missing > 0 && window.has_earlier() {
            // The planner takes values for frequent that it has no statistics of, and would search for them along the
            // index on the time.
            tx.connection()
                .execute("set local enable_indexscan = off; set local enable_seqscan = off")
                .await?;
        }
        while missing > 0
            && let Some(earlier) = window.earlier()
        {
            window = earlier;
            rows.extend(select(tx.connection(), filter, after, window, missing).await?);
            missing = limit - len(&rows);
        }
        tx.end("commit").await?;
        Ok(rows)
    }

    /// Reads the ends of the ledger and of all open chains.
    pub async fn audit_checkpoint(&self, at: OffsetDateTime) -> Result<Checkpoint, StoreError> {
        let heads = self
            .read(async |connection| {
                sqlx::query!(
                    "select chain, seq, hash from audit_heads h where not exists (
                        select from audit_chains c
                        where c.chain = h.chain and c.kind in ('closed', 'interrupted')
                    ) order by chain"
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let mut ledger = None;
        let mut chains = Vec::new();
        for row in heads {
            let hash = digest(&row.hash)?;
            if row.chain == Uuid::nil() {
                ledger = Some(LedgerHead { number: row.seq, hash });
            } else {
                chains.push(ChainHead { chain: row.chain, seq: row.seq, hash });
            }
        }
        let ledger = ledger.ok_or(StoreError::Unreadable("audit head"))?;
        Ok(Checkpoint {
            api_version: API_VERSION.to_owned(),
            at: timestamp(at),
            ledger,
            chains,
            signer: None,
            signature: None,
        })
    }

    /// Acquires the lease to write a checkpoint. Returns false if the last one is younger than `every`, or
    /// another replica acquired the lease within the last minute.
    pub async fn lease_checkpoint(&self, every: Duration) -> Result<bool, StoreError> {
        let seconds = i32::try_from(every.as_secs()).unwrap_or(i32::MAX);
        let leased = self
            .run(async |connection| {
                sqlx::query!(
                    "update audit_checkpoints set leased = now() + interval '1 minute'
                    where leased <= now() and made <= now() - make_interval(secs => $1::integer)",
                    seconds,
                )
                .execute(connection)
                .await
            })
            .await?;
        Ok(leased.rows_affected() == 1)
    }

    /// Records that a checkpoint was written.
    pub async fn record_checkpoint(&self) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!("update audit_checkpoints set made = now(), leased = '-infinity'")
                .execute(connection)
                .await
        })
        .await?;
        Ok(())
    }
}

fn len(rows: &[AuditRow]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

/// Reads the rows of a window that match a filter, newest first, after a position.
async fn select(
    connection: &mut PgConnection,
    filter: &AuditFilter,
    after: Option<AuditPosition>,
    window: Window,
    limit: i64,
) -> Result<Vec<AuditRow>, StoreError> {
    let ids = |agent: &AgentFilter| agent.ids.iter().map(|agent| agent.0).collect::<Vec<_>>();
    let agents = filter.agent.as_ref().map(ids);
    let name = filter.agent.as_ref().and_then(|agent| agent.name.as_deref());
    let rows = sqlx::query!(
        "select version, chain, seq, previous, at, request, encode(trace, 'hex') as trace, tenant, agent, slug,
            principal, principal_kind, key, client, client_name, client_version, protocol, session, method,
            subject, outcome, status, micros, bytes_in, bytes_out, revision, before, after, hash
        from audit_log
        where ($1::uuid is null or tenant = $1)
        and ($2::uuid[] is null or agent = any($2) or slug = $12)
        and ($3::uuid is null or key = $3) and ($4::text is null or method = $4)
        and ($5::text is null or outcome = $5)
        and ($13::text is null or request = $13)
        and ($6::timestamptz is null or at >= $6) and ($7::timestamptz is null or at < $7)
        and ($8::timestamptz is null or (at, chain, seq) < ($8, $9::uuid, $10::bigint))
        order by at desc, chain desc, seq desc limit $11",
        filter.tenant.map(|tenant| tenant.0),
        agents.as_deref(),
        filter.key.map(|key| key.0),
        filter.method,
        filter.outcome,
        window.from,
        window.to,
        after.map(|after| after.at),
        after.map(|after| after.chain),
        after.map(|after| after.seq),
        limit,
        name,
        filter.request,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let (connection, subject) = encoding::connection(row.version, row.subject);
            Ok(AuditRow {
                version: row.version,
                hidden: encoding::is_hidden(row.version),
                chain: row.chain,
                seq: row.seq,
                at: row.at,
                request_id: row.request,
                trace_id: row.trace,
                tenant_id: row.tenant,
                agent_id: row.agent,
                agent: row.slug,
                principal_id: row.principal,
                principal: row.principal_kind,
                key_id: row.key,
                client: row.client,
                client_name: row.client_name,
                client_version: row.client_version,
                protocol_version: row.protocol,
                session_id: row.session,
                method: row.method,
                subject,
                connection,
                outcome: row.outcome,
                status: row.status,
                micros: row.micros,
                bytes_in: row.bytes_in,
                bytes_out: row.bytes_out,
                revision: row.revision,
                before: row.before.as_deref().map(digest).transpose()?,
                after: row.after.as_deref().map(digest).transpose()?,
                previous: Some(digest(&row.previous)?),
                hash: Some(digest(&row.hash)?),
            })
        })
        .collect()
}

fn digest(bytes: &[u8]) -> Result<Digest, StoreError> {
    Digest::read(bytes).ok_or(StoreError::Unreadable("audit hash"))
}
