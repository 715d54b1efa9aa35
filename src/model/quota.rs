//! Periods of quotas, and the shares of them that replicas reserve.

use time::{Date, Duration, Month, OffsetDateTime, Time};

/// The period of a quota, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A month.
    Month,
}

impl Period {
    /// The stored value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The first day of the period that contains `at`.
    pub fn start(self, at: OffsetDateTime) -> Date {
        let today = at.to_offset(time::UtcOffset::UTC).date();
        match self {
            Self::Day => today,
            Self::Month => today.replace_day(1).unwrap_or(today),
        }
    }

    /// The time from `at` until the end of the period.
    pub fn left(self, at: OffsetDateTime) -> std::time::Duration {
        let start = self.start(at);
        let next = match self {
            Self::Day => start.next_day(),
            Self::Month if start.month() == Month::December => {
                Date::from_calendar_date(start.year() + 1, Month::January, 1).ok()
            }
            Self::Month => start.replace_month(start.month().next()).ok(),
        };
        let end = next.map_or(at + Duration::DAY, |next| OffsetDateTime::new_utc(next, Time::MIDNIGHT));
        (end - at).try_into().unwrap_or_default()
    }
}

/// A request of a replica for a share of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRequest {
    /// Period of the quota.
    pub period: Period,
    /// First day of the period.
    pub start: Date,
    /// The quota in calls, if limited, and how many are needed now.
    pub calls: (Option<i64>, i64),
    /// The quota in bytes, if limited, and how many are needed now.
    pub bytes: (Option<i64>, i64),
}

/// A share of a quota that a replica reserves or returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaShare {
    /// Calls.
    pub calls: i64,
    /// Bytes.
    pub bytes: i64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::macros::{date, datetime};

    use super::Period;

    #[test]
    fn periods_start_and_end_in_utc() {
        let at = datetime!(2026-12-31 23:30 -1);
        assert_eq!(Period::Day.start(at), date!(2027 - 01 - 01));
        assert_eq!(Period::Month.start(at), date!(2027 - 01 - 01));
        assert_eq!(Period::Day.left(at), Duration::from_mins(23 * 60 + 30));
        let at = datetime!(2026-12-30 12:00 UTC);
        assert_eq!(Period::Month.start(at), date!(2026 - 12 - 01));
        assert_eq!(Period::Month.left(at), Duration::from_hours(36));
        assert_eq!(Period::Month.left(datetime!(2028-02-28 0:00 UTC)), Duration::from_hours(48));
    }
}
