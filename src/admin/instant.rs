//! Instants in queries and bodies, in UTC: a time of RFC 3339, or a date, which begins at midnight.

use serde::{Deserialize, Deserializer, de};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, UtcOffset};

pub(super) const EXPECTED: &str = "a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28";

pub(super) fn parse(text: &str) -> Option<OffsetDateTime> {
    let date = || Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let midnight = || date().map(|date| date.midnight().assume_utc());
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok().or_else(midnight)?;
    // In UTC, a time of another zone may be in the year 10000, which has no representation, as one before the year 0 in the
    // database.
    instant.checked_to_offset(UtcOffset::UTC).filter(|at| at.year() >= 0)
}

/// For a parameter that may be absent, or a member that may be `null`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OffsetDateTime>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| de::Error::custom(format_args!("expected {EXPECTED}")))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn times_and_dates_are_instants() {
        assert_eq!(parse("2026-07-28T12:00:00Z"), Some(datetime!(2026-07-28 12:00 UTC)));
        assert_eq!(parse("2026-07-28T12:00:00+02:00"), Some(datetime!(2026-07-28 10:00 UTC)));
        assert_eq!(parse("2026-07-28"), Some(datetime!(2026-07-28 00:00 UTC)));
        let whole_hour = parse("2026-07-28T12:10:00+05:30").unwrap().truncate_to_hour();
        assert_eq!(whole_hour, datetime!(2026-07-28 06:00 UTC), "in UTC");
        for wrong in [
            "9999-12-31T23:59:59-00:01",
            "-5000-01-01",
            "",
            "yesterday",
            "2026-02-30",
            "2026-07-28T12:00",
            "28.07.2026",
            "2026-07-28 ",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
