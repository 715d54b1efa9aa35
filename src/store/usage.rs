//! Usage counters of agents, and quotas.

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::model::ids::{AgentId, AgentRef, TenantId};
use crate::model::limits::{Usage, UsageInterval, UsageRow};
use crate::model::quota::{Period, QuotaRequest, QuotaShare};

/// An agent that was called.
#[derive(Debug)]
pub struct UsedAgent {
    /// The agent.
    pub agent: AgentRef,
    /// Its name in URLs.
    pub slug: String,
}

impl Store {
    /// Adds to the usage counters.
    pub async fn add_usage(&self, rows: &[UsageRow]) -> Result<(), StoreError> {
        let agents: Vec<_> = rows.iter().map(|row| row.agent.0).collect();
        let hours: Vec<_> = rows.iter().map(|row| row.at).collect();
        let methods: Vec<_> = rows.iter().map(|row| row.method.as_ref()).collect();
        let column = |of: fn(&Usage) -> u64| -> Vec<i64> {
            rows.iter().map(|row| i64::try_from(of(&row.usage)).unwrap_or(i64::MAX)).collect()
        };
        self.run(async |connection| {
            sqlx::query!(
                "insert into agent_usage as u (agent, hour, method, calls, errors, denied, bytes_in, bytes_out)
                select * from unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::bigint[], $5::bigint[],
                    $6::bigint[], $7::bigint[], $8::bigint[]) as added
                order by 1, 2, 3
                on conflict (agent, hour, method) do update set calls = u.calls + excluded.calls,
                    errors = u.errors + excluded.errors, denied = u.denied + excluded.denied,
                    bytes_in = u.bytes_in + excluded.bytes_in, bytes_out = u.bytes_out + excluded.bytes_out",
                &agents,
                &hours,
                &methods as &[&str],
                &column(|usage| usage.calls),
                &column(|usage| usage.errors),
                &column(|usage| usage.denied),
                &column(|usage| usage.bytes_in),
                &column(|usage| usage.bytes_out),
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }

    /// The usage of an agent from a time up to another (exclusive), by hour or day in UTC and by method; at
    /// most `limit` rows.
    pub async fn usage(
        &self,
        agent: AgentId,
        (from, to): (OffsetDateTime, OffsetDateTime),
        interval: UsageInterval,
        limit: i64,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select date_trunc($4, hour, 'UTC') as "at!", method, sum(calls)::bigint as "calls!",
                        sum(errors)::bigint as "errors!", sum(denied)::bigint as "denied!",
                        sum(bytes_in)::bigint as "bytes_in!", sum(bytes_out)::bigint as "bytes_out!"
                    from agent_usage where agent = $1 and hour >= $2 and hour < $3
                    group by 1, 2 order by 1, 2 limit $5"#,
                    agent.0,
                    from,
                    to,
                    interval.as_str(),
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let count = |stored: i64| u64::try_from(stored).unwrap_or_default();
        Ok(rows
            .into_iter()
            .map(|row| UsageRow {
                agent,
                at: row.at,
                method: row.method.into(),
                usage: Usage {
                    calls: count(row.calls),
                    errors: count(row.errors),
                    denied: count(row.denied),
                    bytes_in: count(row.bytes_in),
                    bytes_out: count(row.bytes_out),
                },
            })
            .collect())
    }

    /// The agents called in the last hour with any calls and the hour before it, at most `limit`, those with the most calls
    /// first.
    pub async fn agents_used_last(&self, limit: i64) -> Result<Vec<UsedAgent>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    "select a.tenant, a.uid, a.slug
                    from (
                        select agent, sum(calls) as calls from agent_usage
                        where hour >= (select max(hour) from agent_usage) - interval '1 hour' and calls > 0
                        group by agent
                    ) as used
                    join agents a on a.uid = used.agent
                    where a.deleted_at is null order by used.calls desc, a.uid limit $1",
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let agent = |tenant, uid| AgentRef { tenant: TenantId(tenant), uid: AgentId(uid) };
        Ok(rows
            .into_iter()
            .map(|row| UsedAgent { agent: agent(row.tenant, row.uid), slug: row.slug })
            .collect())
    }

    /// Reserves a share of the remaining quota of an agent or a tenant for this replica. Returns the share, and what
    /// replicas have reserved so far, this share included.
    pub async fn reserve_quota(
        &self,
        holder: Uuid,
        request: &QuotaRequest,
    ) -> Result<(QuotaShare, QuotaShare), StoreError> {
        let row = self
            .run(async |connection| {
                sqlx::query!(
                    "insert into quotas as q (holder, period, start, calls, bytes, granted_calls, granted_bytes)
                    values ($1, $2, $3, quota_grant(0, $4, $5), quota_grant(0, $6, $7),
                        quota_grant(0, $4, $5), quota_grant(0, $6, $7))
                    on conflict (holder, period, start) do update set
                        calls = q.calls + quota_grant(q.calls, $4, $5),
                        bytes = q.bytes + quota_grant(q.bytes, $6, $7),
                        granted_calls = quota_grant(q.calls, $4, $5),
                        granted_bytes = quota_grant(q.bytes, $6, $7)
                    returning granted_calls, granted_bytes, q.calls, q.bytes",
                    holder,
                    request.period.as_str(),
                    request.start,
                    request.calls.0,
                    request.calls.1,
                    request.bytes.0,
                    request.bytes.1,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        let share = QuotaShare { calls: row.granted_calls, bytes: row.granted_bytes };
        Ok((share, QuotaShare { calls: row.calls, bytes: row.bytes }))
    }

    /// The part of a quota that replicas have reserved so far.
    pub async fn reserved_quota(
        &self,
        holder: Uuid,
        period: Period,
        start: Date,
    ) -> Result<QuotaShare, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query_as!(
                    QuotaShare,
                    "select calls, bytes from quotas where holder = $1 and period = $2 and start = $3",
                    holder,
                    period.as_str(),
                    start,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        Ok(row.unwrap_or_default())
    }

    /// Returns the unused part of a reserved share. What is negative in it was used beyond the share, and is added.
    pub async fn return_quota(
        &self,
        holder: Uuid,
        period: Period,
        start: Date,
        share: QuotaShare,
    ) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!(
                // There is no row where nothing was reserved: for calls on credit, and for the bytes of a request that ended
                // in another period.
                "insert into quotas as q (holder, period, start, calls, bytes, granted_calls, granted_bytes)
                values ($1, $2, $3, greatest(0, 0 - $4::bigint), greatest(0, 0 - $5::bigint), 0, 0)
                on conflict (holder, period, start) do update set
                    calls = greatest(0, q.calls - $4), bytes = greatest(0, q.bytes - $5)",
                holder,
                period.as_str(),
                start,
                share.calls,
                share.bytes,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }

    /// Deletes usage counters from before a time, and quotas of past periods.
    pub async fn delete_usage_before(&self, before: OffsetDateTime, quotas: Date) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!(
                "with old as (delete from quotas where start < $2) delete from agent_usage where hour < $1",
                before,
                quotas,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }
}
