//! Readiness (`/readyz`): whether requests can be answered, and whether only from memory (degraded).

use std::time::Duration;

use super::Catalog;
use crate::model::feed::FeedStatus;

/// Why a gateway is not fully ready. Codes only: no host, no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Notifications or sweeps have not worked yet since the start.
    Starting,
    /// Sweeps fail.
    DatabaseUnreachable,
    /// Notifications are not delivered; each answer sweeps first.
    ListenLost,
    /// The last successful sweep is older than `access.stale_seconds`.
    MemoryExpired,
    /// No agent is in memory.
    MemoryEmpty,
    /// The clock of this machine differs from the database's by a minute or more.
    ClockSkew,
}

impl Reason {
    /// The code in the answer of `readyz`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::DatabaseUnreachable => "database_unreachable",
            Self::ListenLost => "listen_lost",
            Self::MemoryExpired => "memory_expired",
            Self::MemoryEmpty => "memory_empty",
            Self::ClockSkew => "clock_skew",
        }
    }
}

/// Whether requests can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The database answers, and changes are notified.
    Ready,
    /// Requests are answered, from memory or after a sweep each.
    Degraded(Vec<Reason>),
    /// Requests are refused, or answered by a clock that is wrong.
    Unready(Vec<Reason>),
}

impl Readiness {
    /// `stale` is the maximum age of memory; `holds` is whether any agent is in memory.
    fn of(health: FeedStatus, stale: Duration, holds: bool) -> Self {
        let FeedStatus { started, listening, sweeping, sweep_age, clock_skewed } = health;
        if !started {
            return Self::Unready(vec![Reason::Starting]);
        }
        let mut reasons = Vec::new();
        if !sweeping {
            reasons.push(Reason::DatabaseUnreachable);
        }
        if !listening {
            reasons.push(Reason::ListenLost);
        }
        let refused = match () {
            () if sweeping => None,
            () if sweep_age >= stale => Some(Reason::MemoryExpired),
            () if !holds => Some(Reason::MemoryEmpty),
            () => None,
        };
        reasons.extend(refused);
        reasons.extend(clock_skewed.then_some(Reason::ClockSkew));
        if reasons.is_empty() {
            Self::Ready
        } else if refused.is_some() || clock_skewed {
            Self::Unready(reasons)
        } else {
            Self::Degraded(reasons)
        }
    }
}

impl Catalog {
    /// Whether requests can be answered now.
    pub fn readiness(&self) -> Readiness {
        Readiness::of(self.loader.health(), self.loader.stale(), !self.agents.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_is_degraded_as_long_as_answers_are_allowed() {
        use Reason::{ClockSkew, DatabaseUnreachable, ListenLost, MemoryEmpty, MemoryExpired, Starting};
        let health = |listening, sweeping, age: u64| {
            let sweep_age = Duration::from_secs(age);
            FeedStatus { started: true, listening, sweeping, sweep_age, clock_skewed: false }
        };
        let of = |listening, sweeping, age, holds| {
            Readiness::of(health(listening, sweeping, age), Duration::from_mins(1), holds)
        };
        assert_eq!(of(true, true, 0, false), Readiness::Ready);
        assert_eq!(of(false, true, 0, false), Readiness::Degraded(vec![ListenLost]));
        assert_eq!(of(true, false, 59, true), Readiness::Degraded(vec![DatabaseUnreachable]));
        assert_eq!(of(false, false, 59, true), Readiness::Degraded(vec![DatabaseUnreachable, ListenLost]));
        assert_eq!(of(true, false, 60, true), Readiness::Unready(vec![DatabaseUnreachable, MemoryExpired]));
        assert_eq!(of(true, false, 1, false), Readiness::Unready(vec![DatabaseUnreachable, MemoryEmpty]));
        let new = FeedStatus { started: false, ..health(false, true, 0) };
        assert_eq!(Readiness::of(new, Duration::MAX, true), Readiness::Unready(vec![Starting]));
        let skewed = |listening| {
            let health = FeedStatus { clock_skewed: true, ..health(listening, true, 0) };
            Readiness::of(health, Duration::from_mins(1), true)
        };
        assert_eq!(skewed(true), Readiness::Unready(vec![ClockSkew]));
        assert_eq!(skewed(false), Readiness::Unready(vec![ListenLost, ClockSkew]));
    }
}
