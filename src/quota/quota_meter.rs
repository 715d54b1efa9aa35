//! What is left of the quotas of tenants, for metrics: as of the last time that this replica reserved a share.

use dashmap::DashMap;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::period_limit::PeriodLimit;
use crate::model::quota::{Period, QuotaShare};

/// The reservations of tenants, as the database showed them.
#[derive(Debug)]
pub(super) struct QuotaMeter {
    /// The maximum number of tenants; of further ones nothing is recorded.
    most: usize,
    tenants: DashMap<Uuid, [Option<Reserved>; 2]>,
}

/// What all replicas had reserved of the quota of a period.
#[derive(Debug, Clone, Copy)]
struct Reserved {
    start: Date,
    most: PeriodLimit,
    shares: QuotaShare,
}

/// What is left of a quota of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLeft {
    /// The tenant's UUID.
    pub tenant: Uuid,
    /// The period.
    pub period: Period,
    /// `calls` or `bytes`.
    pub unit: &'static str,
    /// How much is left, including the unused share of this replica. Those of other replicas count as used.
    pub left: i64,
}

impl QuotaMeter {
    pub(super) fn new(most: usize) -> Self {
        Self { most, tenants: DashMap::new() }
    }

    /// Records what is reserved of a tenant's quota.
    pub(super) fn record(
        &self,
        tenant: Uuid,
        (period, start): (Period, Date),
        most: PeriodLimit,
        shares: QuotaShare,
    ) {
        if self.tenants.len() >= self.most && !self.tenants.contains_key(&tenant) {
            return;
        }
        let mut periods = self.tenants.entry(tenant).or_default();
        *of(&mut periods, period) = Some(Reserved { start, most, shares });
    }

    /// Records that a part of it was returned.
    pub(super) fn record_returned(&self, tenant: Uuid, (period, start): (Period, Date), share: QuotaShare) {
        let Some(mut periods) = self.tenants.get_mut(&tenant) else { return };
        if let Some(known) = of(&mut periods, period).as_mut().filter(|known| known.start == start) {
            known.shares.calls -= share.calls;
            known.shares.bytes -= share.bytes;
        }
    }

    /// What is left of the quotas of the current periods. `share` is the unused share of this replica.
    pub(super) fn left(
        &self,
        at: OffsetDateTime,
        share: impl Fn(&Uuid, Period) -> QuotaShare,
    ) -> Vec<QuotaLeft> {
        let mut all = Vec::new();
        for entry in &self.tenants {
            for (period, known) in [Period::Day, Period::Month].into_iter().zip(entry.value()) {
                let Some(known) = known.filter(|known| known.start == period.start(at)) else { continue };
                let (most, reserved, share) = (known.most, known.shares, share(entry.key(), period));
                let units = [
                    ("calls", most.calls, reserved.calls, share.calls),
                    ("bytes", most.bytes, reserved.bytes, share.bytes),
                ];
                all.extend(units.into_iter().filter_map(|(unit, most, reserved, share)| {
                    let left = most?.saturating_sub(reserved).saturating_add(share).max(0);
                    Some(QuotaLeft { tenant: *entry.key(), period, unit, left })
                }));
            }
        }
        all
    }
}

fn of([day, month]: &mut [Option<Reserved>; 2], period: Period) -> &mut Option<Reserved> {
    match period {
        Period::Day => day,
        Period::Month => month,
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::{Period, PeriodLimit, QuotaLeft, QuotaMeter, QuotaShare};

    #[test]
    fn quota_left_counts_what_is_unused_here_of_the_current_period() {
        let (meter, at) = (QuotaMeter::new(1), datetime!(2026-11-23 12:00 UTC));
        let [tenant, other] = [1, 2].map(Uuid::from_u128);
        let (most, start) = (PeriodLimit { calls: Some(100), bytes: None }, Period::Day.start(at));
        let share = |calls| QuotaShare { calls, bytes: 0 };
        meter.record(tenant, (Period::Day, start), most, share(40));
        meter.record(other, (Period::Day, start), most, share(40));
        let left = |calls, here| {
            let expected = QuotaLeft { tenant, period: Period::Day, unit: "calls", left: calls };
            assert_eq!(meter.left(at, |_, _| share(here)), [expected], "past the bound nothing is recorded");
        };
        left(70, 10);
        meter.record_returned(tenant, (Period::Day, start), share(10));
        left(70, 0);
        left(0, -80);
        assert_eq!(meter.left(at + time::Duration::DAY, |_, _| share(0)), []);
    }
}
