//! What is used: counted in memory by agent, hour and method, written down now and then, and held against quotas.

mod counters;
mod quotas;

use std::time::Duration;

use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::counters::Counters;
use self::quotas::Quotas;
use crate::model::agent::AccessLimits;
use crate::model::fault::{Fault, LimitScope};
use crate::model::ids::{AgentId, TenantId};
use crate::model::limits::UseLimits;
use crate::model::sources::Sources;
use crate::model::usage::{QuotaShare, Usage, UsageInterval, UsageRow};
use crate::store::Store;

/// How often what lies idle of a quota is given back.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);
/// How often what is old is taken away.
const FORGET_EVERY: Duration = Duration::from_hours(1);
/// Most rows of one answer about usage: a month by the hour, of forty methods.
const MOST_ROWS: i64 = 30_000;

/// The rhythm of usage.
#[derive(Debug, Clone)]
pub struct UsageOptions {
    /// How often counts are written down.
    pub settle: Duration,
    /// For how long they are kept.
    pub retain: Duration,
    /// For how long calls are let in uncounted while the database is away.
    pub stale: Duration,
    /// What strangers may use in addition to a quota, in percent of it.
    pub strangers_percent: u16,
}

/// What is used of the agents of this replica.
#[derive(Debug)]
pub struct UsageBook {
    store: Store,
    sources: Sources,
    options: UsageOptions,
    counters: Counters,
    quotas: Quotas,
}

/// Whose quotas a request counts against.
#[derive(Debug, Clone, Copy)]
pub struct Holders<'a> {
    /// The agent.
    pub agent: AgentId,
    /// Its tenant.
    pub tenant: TenantId,
    /// What was set for both.
    pub limits: &'a AccessLimits,
    /// Whether the caller has a credential of the agent or its tenant. What others use of a public agent is counted
    /// apart, against quotas of their own.
    pub own: bool,
}

impl UsageBook {
    /// An empty book.
    pub fn new(store: Store, sources: Sources, options: UsageOptions) -> Self {
        let quotas = Quotas::new(store.clone(), options.stale);
        Self { store, sources, options, counters: Counters::default(), quotas }
    }

    /// The quotas that a request counts against.
    fn quotas_of(&self, holders: Holders<'_>) -> impl Iterator<Item = (LimitScope, Uuid, UseLimits)> + use<> {
        let agent = (LimitScope::Agent, holders.limits.quota_holder.0, &holders.limits.agent);
        let tenant = (LimitScope::Tenant, holders.tenant.0, &holders.limits.tenant);
        let counted = |(scope, uid, limits): (LimitScope, Uuid, &UseLimits)| {
            limits.has_quota().then(|| {
                if holders.own {
                    (scope, uid, *limits)
                } else {
                    (scope, strangers_of(uid), limits.of_strangers(self.options.strangers_percent))
                }
            })
        };
        [agent, tenant].map(counted).into_iter().flatten()
    }

    /// Whether it is known in memory that a quota is used up. Takes nothing and asks nobody.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`].
    pub fn check(&self, holders: Holders<'_>) -> Result<(), Fault> {
        self.quotas_of(holders).try_for_each(|(scope, uid, limits)| {
            let used_up = self.quotas.known_used_up(uid, &limits, self.sources.clock.now());
            used_up.map_or(Ok(()), |refused| Err(refused.of(scope)))
        })
    }

    /// Takes calls from the quotas of an agent and its tenant.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`]; [`Fault::StorageUnavailable`] where the database has been away for long.
    pub async fn take_calls(&self, holders: Holders<'_>, calls: u32) -> Result<(), Fault> {
        if calls == 0 {
            return Ok(());
        }
        let calls = i64::from(calls);
        for (nth, (scope, uid, limits)) in self.quotas_of(holders).enumerate() {
            let taken = Box::pin(self.quotas.take(uid, &limits, calls, self.sources.clock.now())).await;
            if let Err(refused) = taken {
                for (_, uid, limits) in self.quotas_of(holders).take(nth) {
                    self.quotas.adjust(uid, &limits, QuotaShare { calls, bytes: 0 });
                }
                return Err(refused.of(scope));
            }
        }
        Ok(())
    }

    /// Whether a call would find something left of every quota now. Takes nothing.
    ///
    /// # Errors
    /// [`Fault::QuotaExceeded`].
    pub async fn would_take(&self, holders: Holders<'_>) -> Result<(), Fault> {
        let now = self.sources.clock.now();
        for (scope, uid, limits) in self.quotas_of(holders) {
            let used_up = self.quotas.used_up(uid, &limits, now).await?;
            used_up.map_or(Ok(()), |refused| Err(refused.of(scope)))?;
        }
        Ok(())
    }

    /// Counts what was used of an agent by a method, one of a few names, at a time.
    pub fn count(&self, holders: Holders<'_>, method: &'static str, at: OffsetDateTime, usage: &Usage) {
        self.counters.count(holders.agent, method, at, usage);
        let bytes = i64::try_from(usage.bytes_in + usage.bytes_out).unwrap_or(i64::MAX);
        for (_, uid, limits) in self.quotas_of(holders) {
            self.quotas.adjust(uid, &limits, QuotaShare { calls: 0, bytes: -bytes });
        }
    }

    /// What was used of an agent, in steps, from a time on and before another; what was counted in the last seconds may
    /// not be in it yet.
    pub async fn usage(
        &self,
        agent: AgentId,
        span: (OffsetDateTime, OffsetDateTime),
        bucket: UsageInterval,
    ) -> Result<Vec<UsageRow>, Fault> {
        Ok(self.store.usage(agent, span, bucket, MOST_ROWS).await?)
    }

    /// Writes down what was counted, gives back what lies idle, and takes away what is old, until `stop`.
    pub async fn keep(&self, stop: CancellationToken) {
        let mut settle = tokio::time::interval(self.options.settle);
        let mut give_back = tokio::time::interval(GIVE_BACK_EVERY);
        let mut forget = tokio::time::interval(FORGET_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = settle.tick() => self.counters.settle(&self.store).await,
                _ = give_back.tick() => self.quotas.give_back(false).await,
                _ = forget.tick() => self.forget().await,
            }
        }
        self.counters.settle(&self.store).await;
        self.quotas.give_back(true).await;
    }

    async fn forget(&self) {
        let now = self.sources.clock.now();
        let quotas = now.date().saturating_sub(time::Duration::days(70));
        if let Err(error) = self.store.delete_usage_before(now - self.options.retain, quotas).await {
            tracing::warn!(%error, "old usage is taken away later");
        }
    }
}

/// What stands for all strangers to an agent or a tenant where quotas are kept.
fn strangers_of(uid: Uuid) -> Uuid {
    let digest = Sha256::new().chain_update(b"strangers").chain_update(uid.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
