//! What was used of agents, and what is left of quotas.

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::model::ids::AgentId;
use crate::model::usage::{Bucket, Need, Period, Share, Usage, UsageRow};

impl Store {
    /// Adds to what was used.
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

    /// What was used of an agent from a time on and before another, by hour or day in UTC and by method; at most so
    /// many rows.
    pub async fn usage(
        &self,
        agent: AgentId,
        (from, to): (OffsetDateTime, OffsetDateTime),
        bucket: Bucket,
        limit: i64,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let rows = self
            .run(async |connection| {
                sqlx::query!(
                    r#"select date_trunc($4, hour, 'UTC') as "at!", method, sum(calls)::bigint as "calls!",
                        sum(errors)::bigint as "errors!", sum(denied)::bigint as "denied!",
                        sum(bytes_in)::bigint as "bytes_in!", sum(bytes_out)::bigint as "bytes_out!"
                    from agent_usage where agent = $1 and hour >= $2 and hour < $3
                    group by 1, 2 order by 1, 2 limit $5"#,
                    agent.0,
                    from,
                    to,
                    bucket.as_str(),
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

    /// Takes what one replica is given of what is left to an agent or a tenant.
    pub async fn take_quota(&self, holder: Uuid, need: &Need) -> Result<Share, StoreError> {
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
                    returning granted_calls, granted_bytes",
                    holder,
                    need.period.as_str(),
                    need.start,
                    need.calls.0,
                    need.calls.1,
                    need.bytes.0,
                    need.bytes.1,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        Ok(Share { calls: row.granted_calls, bytes: row.granted_bytes })
    }

    /// Gives back what was not needed.
    pub async fn give_back_quota(
        &self,
        holder: Uuid,
        period: Period,
        start: Date,
        share: Share,
    ) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!(
                "update quotas set calls = greatest(0, calls - $4), bytes = greatest(0, bytes - $5)
                where holder = $1 and period = $2 and start = $3",
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

    /// Takes away what was used before a time, and quotas of periods long over.
    pub async fn forget_usage(&self, before: OffsetDateTime, quotas: Date) -> Result<(), StoreError> {
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
