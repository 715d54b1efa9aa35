//! Instants in queries and bodies: a time of RFC 3339, or a date, which begins at midnight in UTC.

use serde::{Deserialize, Deserializer, de};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

pub(super) const EXPECTED: &str = "a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28";

pub(super) fn parse(text: &str) -> Option<OffsetDateTime> {
    let date = || Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let midnight = || date().map(|date| date.midnight().assume_utc());
    OffsetDateTime::parse(text, &Rfc3339).ok().or_else(midnight)
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
        for wrong in ["", "yesterday", "2026-02-30", "2026-07-28T12:00", "28.07.2026", "2026-07-28 "] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
