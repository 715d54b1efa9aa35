//! Counts the requests of tenants, for operators who turn it on: as many tenants as the setting says, the others together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::model::audit::event::Outcome;
use crate::model::ids::TenantId;
use crate::telemetry::histogram::{DurationCounts, DurationHistogram};

/// How requests end, as tenants are shown it.
const RESULTS: [&str; 3] = ["served", "denied", "failed"];

/// Counts the requests of tenants.
#[derive(Debug, Default)]
pub struct TenantMeter {
    /// The maximum number of tenants that are counted each.
    most: usize,
    tenants: DashMap<TenantId, Counters>,
    others: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    results: [AtomicU64; RESULTS.len()],
    bytes: AtomicU64,
    durations: DurationHistogram,
}

/// What was counted of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantCounts {
    /// The tenant's UUID; `other` for all that are not counted each.
    pub tenant: String,
    /// The requests by result.
    pub results: [(&'static str, u64); RESULTS.len()],
    /// The bytes of bodies in both directions, without those of streams.
    pub bytes: u64,
    /// The durations.
    pub durations: DurationCounts,
}

/// A request that is counted.
#[derive(Debug, Clone, Copy)]
pub struct CountedRequest {
    /// How it ended.
    pub outcome: Outcome,
    /// The bytes of its body and of its answer.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

impl TenantMeter {
    /// Counts at most `most` tenants each.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Counts a request.
    pub fn count(&self, tenant: TenantId, request: CountedRequest) {
        if let Some(counters) = self.tenants.get(&tenant) {
            return counters.count(request);
        }
        if self.tenants.len() >= self.most {
            return self.others.count(request);
        }
        self.tenants.entry(tenant).or_default().count(request);
    }

    /// What was counted.
    pub fn counts(&self) -> Vec<TenantCounts> {
        let tenants = self.tenants.iter().map(|entry| entry.value().counts(entry.key().to_string()));
        tenants.chain([self.others.counts("other".to_owned())]).collect()
    }
}

impl Counters {
    fn count(&self, CountedRequest { outcome, bytes, took }: CountedRequest) {
        let [served, denied, failed] = &self.results;
        let result = match outcome {
            outcome if outcome.is_served() => served,
            outcome if outcome.is_denied() => denied,
            _ => failed,
        };
        result.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.durations.count(took);
    }

    fn counts(&self, tenant: String) -> TenantCounts {
        let value = |at: usize| self.results.get(at).map_or(0, |count| count.load(Ordering::Relaxed));
        let results = std::array::from_fn(|at| (RESULTS.get(at).copied().unwrap_or_default(), value(at)));
        let (bytes, durations) = (self.bytes.load(Ordering::Relaxed), self.durations.counts());
        TenantCounts { tenant, results, bytes, durations }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::{CountedRequest, TenantMeter};
    use crate::model::audit::event::Outcome;
    use crate::model::ids::TenantId;

    fn count(meter: &TenantMeter, tenant: u128, outcome: Outcome) {
        let request = CountedRequest { outcome, bytes: 10, took: Duration::from_micros(3) };
        meter.count(TenantId(Uuid::from_u128(tenant)), request);
    }

    #[test]
    fn tenants_past_the_bound_are_counted_together() {
        let meter = TenantMeter::new(1);
        for (tenant, outcome) in [
            (1, Outcome::Ok),
            (2, Outcome::RateLimited),
            (3, Outcome::ResourceNotFound),
            (1, Outcome::InputRequired),
        ] {
            count(&meter, tenant, outcome);
        }
        let counts = meter.counts();
        let counted: Vec<_> = counts
            .iter()
            .map(|counts| (&*counts.tenant, counts.results.map(|(_, count)| count), counts.bytes))
            .collect();
        let first = Uuid::from_u128(1).to_string();
        assert_eq!(counted, [(&*first, [2, 0, 0], 20), ("other", [0, 1, 1], 20)]);
        assert_eq!(counts[0].durations.micros, 6);
        assert_eq!(counts[0].results.map(|(name, _)| name), ["served", "denied", "failed"]);
    }
}
