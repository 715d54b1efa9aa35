//! Usage: counted in memory by agent, hour and method, persisted periodically, and compared with quotas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::quota_meter::QuotaLeft;
use super::quotas::Quotas;
use crate::model::agent::AccessLimits;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId, uuid_of_digest};
use crate::model::limits::{LimitScope, Usage, UsageInterval, UsageRow, UseLimits};
use crate::model::system::System;
use crate::store::Store;
use crate::telemetry::RepeatedWork;

/// The interval at which unused shares of quotas are returned.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);
/// The interval at which old usage is pruned.
const PRUNE_EVERY: Duration = Duration::from_hours(1);
/// The maximum number of rows of one usage report: a month by the hour, of forty methods.
const MAX_ROWS: i64 = 30_000;

/// The options of usage.
#[derive(Debug, Clone)]
pub struct UsageOptions {
    /// The interval at which counts are persisted.
    pub settle: Duration,
    /// How long they are retained.
    pub retain: Duration,
    /// How long calls are admitted on credit while the database is unreachable.
    pub stale: Duration,
    /// The quota of anonymous callers in addition to each quota, in percent of it.
    pub strangers_percent: u16,
    /// The maximum number of tenants whose quotas are metered.
    pub metered_tenants: usize,
}

/// Counts usage and enforces quotas on this replica.
#[derive(Debug)]
pub struct UsageTracker {
    store: Store,
    system: System,
    options: UsageOptions,
    counters: Counters,
    quotas: Arc<Quotas>,
    pruning: RepeatedWork,
}

/// The agent and tenant whose quotas a request counts against.
#[derive(Debug, Clone, Copy)]
pub struct QuotaSubject<'a> {
    /// The agent.
    pub agent: AgentId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The limits of both; `None` if no quota is among them.
    pub limits: Option<&'a AccessLimits>,
    /// Whether the caller has a credential of the agent or its tenant. The usage of anonymous callers of a public agent is
    /// counted separately, against quotas of their own.
    pub is_own: bool,
}

impl UsageTracker {
    /// Creates the service without counts.
    pub fn new(store: Store, system: System, options: UsageOptions) -> Self {
        let quotas = Arc::new(Quotas::new(store.clone(), options.stale, options.metered_tenants));
        Self {
            store,
            system,
            options,
            counters: Counters::default(),
            quotas,
            pruning: RepeatedWork::default(),
        }
    }

    /// The quotas that a request counts against.
    fn quotas_of(
        &self,
        subject: QuotaSubject<'_>,
    ) -> impl Iterator<Item = (LimitScope, Uuid, UseLimits)> + use<> {
        let limits = subject.limits.map(|limits| {
            let agent = (LimitScope::Agent, limits.quota_holder.0, &limits.agent);
            [agent, (LimitScope::Tenant, subject.tenant.0, &limits.tenant)]
        });
        let counted = move |(scope, uid, limits): (LimitScope, Uuid, &UseLimits)| {
            limits.has_quota().then(|| {
                if subject.is_own {
                    (scope, uid, *limits)
                } else {
                    (scope, anonymous_of(uid), limits.of_anonymous(self.options.strangers_percent))
                }
            })
        };
        limits.map(|both| both.map(counted)).into_iter().flatten().flatten()
    }

    /// Checks that no quota is known in memory to be exhausted. Charges nothing and makes no query.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`].
    pub fn check(&self, subject: QuotaSubject<'_>) -> Result<(), Fault> {
        self.quotas_of(subject).try_for_each(|(scope, uid, limits)| {
            let exhausted = self.quotas.known_exhausted(uid, &limits, self.system.clock.now());
            exhausted.map_or(Ok(()), |refused| Err(refused.of(scope)))
        })
    }

    /// Charges calls to the quotas of an agent and its tenant.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`]; [`Fault::StorageUnavailable`] if the database has been unreachable for too long.
    pub async fn take_calls(&self, subject: QuotaSubject<'_>, calls: u32) -> Result<(), Fault> {
        if calls == 0 {
            return Ok(());
        }
        let (calls, at) = (i64::from(calls), self.system.clock.now());
        for (nth, (scope, uid, limits)) in self.quotas_of(subject).enumerate() {
            let holder = (uid, subject.is_own && scope == LimitScope::Tenant);
            let taken = Box::pin(self.quotas.take(holder, &limits, calls, self.system.clock.as_ref())).await;
            if let Err(refused) = taken {
                for (_, uid, limits) in self.quotas_of(subject).take(nth) {
                    self.quotas.refund(uid, &limits, calls, at);
                }
                return Err(refused.of(scope));
            }
        }
        Ok(())
    }

    /// What is left of the quotas of the tenants that are metered.
    pub fn quotas_left(&self) -> Vec<QuotaLeft> {
        self.quotas.left(self.system.clock.now())
    }

    /// Checks that no quota is exhausted. Charges nothing.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`].
    pub async fn would_take(&self, subject: QuotaSubject<'_>) -> Result<(), Fault> {
        let now = self.system.clock.now();
        for (scope, uid, limits) in self.quotas_of(subject) {
            let exhausted = self.quotas.exhausted(uid, &limits, now).await?;
            exhausted.map_or(Ok(()), |refused| Err(refused.of(scope)))?;
        }
        Ok(())
    }

    /// Counts the usage of an agent by a method at a time. The method is one of a fixed set of names. The bytes of a request that
    /// is free of charge (`is_free`) are taken from no quota.
    pub fn count(
        &self,
        subject: QuotaSubject<'_>,
        (method, is_free): (&'static str, bool),
        at: OffsetDateTime,
        usage: &Usage,
    ) {
        self.counters.count(subject.agent, method, at, usage);
        if is_free {
            return;
        }
        let bytes = i64::try_from(usage.bytes_in + usage.bytes_out).unwrap_or(i64::MAX);
        for (_, uid, limits) in self.quotas_of(subject) {
            self.quotas.charge_bytes(uid, &limits, bytes, at);
        }
    }

    /// The usage of an agent in a span of time, by bucket. Counts of the last seconds may be missing.
    pub async fn usage(
        &self,
        agent: AgentId,
        span: (OffsetDateTime, OffsetDateTime),
        bucket: UsageInterval,
    ) -> Result<Vec<UsageRow>, Fault> {
        Ok(self.store.usage(agent, span, bucket, MAX_ROWS).await?)
    }

    /// Persists counts, returns unused shares and prunes old usage, until `stop`.
    pub async fn run_maintenance(&self, stop: CancellationToken) {
        let mut settle = tokio::time::interval(self.options.settle);
        let mut give_back = aligned_timers::interval(GIVE_BACK_EVERY);
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = settle.tick() => self.counters.persist(&self.store).await,
                _ = give_back.tick() => self.quotas.give_back(false).await,
                _ = prune.tick() => self.prune().await,
            }
        }
        self.counters.persist(&self.store).await;
        self.quotas.give_back(true).await;
    }

    async fn prune(&self) {
        if !self.system.clock.is_confirmed() {
            return;
        }
        let now = self.system.clock.now();
        let quotas = now.date().saturating_sub(time::Duration::days(70));
        let pruned = self.store.delete_usage_before(now - self.options.retain, quotas).await;
        self.pruning.record("pruning usage", &pruned);
    }
}

/// The UUID under which the quotas of all anonymous callers of an agent or a tenant are stored.
fn anonymous_of(uid: Uuid) -> Uuid {
    let digest = Sha256::new().chain_update(b"strangers").chain_update(uid.as_bytes()).finalize();
    uuid_of_digest(&digest.into())
}

const HOUR: i64 = 3_600;
/// The maximum number of counts that wait for the database; above it new ones are lost, which is logged.
const MAX_COUNTS: usize = 100_000;
/// Rows per statement.
const BATCH: usize = 5_000;

/// Counts by agent, hour and method.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// The hour, counted from 1970.
    counts: DashMap<(AgentId, i64, &'static str), Usage, RandomState>,
    lost: AtomicU64,
    persisting: RepeatedWork,
}

impl Counters {
    pub(super) fn count(&self, agent: AgentId, method: &'static str, at: OffsetDateTime, usage: &Usage) {
        let key = (agent, at.unix_timestamp().div_euclid(HOUR), method);
        if let Some(mut present) = self.counts.get_mut(&key) {
            return add(&mut present, usage);
        }
        if self.counts.len() >= MAX_COUNTS {
            self.lost.fetch_add(usage.calls, Ordering::Relaxed);
            return;
        }
        add(&mut self.counts.entry(key).or_default(), usage);
    }

    /// Persists the counts; those that cannot be written are kept. A write whose answer is lost may have been committed and is
    /// repeated, so that what it counted may be counted twice: once for each lost answer, what was counted since the write before.
    pub(super) async fn persist(&self, store: &Store) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::error!(calls = lost, "usage lost: too many counts wait for the database");
        }
        let keys: Vec<_> = self.counts.iter().map(|entry| *entry.key()).collect();
        for keys in keys.chunks(BATCH) {
            let taken: Vec<_> = keys.iter().filter_map(|key| self.counts.remove(key)).collect();
            let rows: Vec<_> = taken.iter().filter_map(|(key, usage)| row(*key, *usage)).collect();
            let persisted = store.add_usage(&rows).await;
            self.persisting.record("persisting usage", &persisted);
            if persisted.is_err() {
                for (key, usage) in &taken {
                    add(&mut self.counts.entry(*key).or_default(), usage);
                }
                return;
            }
        }
    }
}

fn row((agent, hour, method): (AgentId, i64, &'static str), usage: Usage) -> Option<UsageRow> {
    let at = OffsetDateTime::from_unix_timestamp(hour * HOUR).ok()?;
    Some(UsageRow { agent, at, method: method.into(), usage })
}

/// Adds counters to those of the same agent, hour and method.
fn add(total: &mut Usage, more: &Usage) {
    total.calls += more.calls;
    total.errors += more.errors;
    total.denied += more.denied;
    total.bytes_in += more.bytes_in;
    total.bytes_out += more.bytes_out;
}
