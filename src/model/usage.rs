//! What was used, and what may be.

use std::borrow::Cow;

use time::{Date, Duration, Month, OffsetDateTime, Time};

use super::ids::AgentId;

/// What was used in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Requests.
    pub calls: u64,
    /// Those that failed.
    pub errors: u64,
    /// Those that were refused for a limit or a quota, or for want of a scope.
    pub denied: u64,
    /// Bytes of their bodies.
    pub bytes_in: u64,
    /// Bytes of the answers.
    pub bytes_out: u64,
}

impl Usage {
    /// Adds what another says.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.denied += other.denied;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// What was used of an agent by one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The agent.
    pub agent: AgentId,
    /// When the hour or day begins.
    pub at: OffsetDateTime,
    /// The method.
    pub method: Cow<'static, str>,
    /// How much.
    pub usage: Usage,
}

/// In which steps usage is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bucket {
    /// By the hour.
    #[default]
    Hour,
    /// By the day, in UTC.
    Day,
}

impl Bucket {
    /// As the database calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// For how long a quota lasts, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A month.
    Month,
}

impl Period {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The day on which the period that a moment lies in began.
    pub fn start(self, at: OffsetDateTime) -> Date {
        let today = at.to_offset(time::UtcOffset::UTC).date();
        match self {
            Self::Day => today,
            Self::Month => today.replace_day(1).unwrap_or(today),
        }
    }

    /// How long it is until the period that a moment lies in is over.
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

/// What a replica asks of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Of which period.
    pub period: Period,
    /// When it began.
    pub start: Date,
    /// The most calls, and how many are needed now.
    pub calls: (Option<i64>, i64),
    /// The most bytes, and how many are needed now.
    pub bytes: (Option<i64>, i64),
}

/// What a replica is given of a quota, or gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
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
    fn days_and_months_begin_and_end_in_utc() {
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
