//! Settings that are numbers: counts, sizes in bytes and durations, each with a range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::kind::{DisplayValue, Kind, quote, text_of};
use super::layers::Raw;

const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// An unsigned integer type.
pub(super) trait UnsignedInteger: Copy + PartialOrd + Display + TryFrom<u64> + TryInto<u64> {}

impl<T: Copy + PartialOrd + Display + TryFrom<u64> + TryInto<u64>> UnsignedInteger for T {}

/// A count.
pub(super) struct Count<T>(pub(super) RangeInclusive<T>);

impl<T: UnsignedInteger> Kind for Count<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        let text = text_of(raw)?;
        within(&self.0, text.parse().ok()).ok_or_else(|| {
            format!(
                "{} is not a whole number from {} to {}",
                quote_number(raw, &text),
                self.0.start(),
                self.0.end()
            )
        })
    }

    fn display(&self, value: &T) -> DisplayValue {
        DisplayValue::Integer((*value).try_into().unwrap_or(u64::MAX))
    }
}

/// A size in bytes, optionally with the unit `KiB`, `MiB` or `GiB`.
pub(super) struct Size<T>(pub(super) RangeInclusive<T>);

impl<T: UnsignedInteger> Kind for Size<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        let text = text_of(raw)?;
        within(&self.0, bytes(&text)).ok_or_else(|| {
            let [least, most] = [self.0.start(), self.0.end()].map(|&end| in_largest_unit(end));
            let value = quote_number(raw, &text);
            format!("{value} is not a size from {least} to {most}, such as 65536 or \"64 KiB\"")
        })
    }

    fn display(&self, value: &T) -> DisplayValue {
        DisplayValue::Integer((*value).try_into().unwrap_or(u64::MAX))
    }
}

/// A duration in the unit at the end of the setting's name.
pub(super) struct Time {
    range: RangeInclusive<u64>,
    unit: &'static str,
    milliseconds: u64,
}

impl Time {
    pub(super) fn seconds(range: RangeInclusive<u64>) -> Self {
        Self { range, unit: "seconds", milliseconds: 1000 }
    }

    pub(super) fn minutes(range: RangeInclusive<u64>) -> Self {
        Self { range, unit: "minutes", milliseconds: 60_000 }
    }

    pub(super) fn days(range: RangeInclusive<u64>) -> Self {
        Self { range, unit: "days", milliseconds: 86_400_000 }
    }

    pub(super) fn milliseconds(range: RangeInclusive<u64>) -> Self {
        Self { range, unit: "milliseconds", milliseconds: 1 }
    }

    /// The duration of so many units.
    pub(super) fn duration(&self, number: u64) -> Duration {
        Duration::from_millis(number * self.milliseconds)
    }
}

impl Kind for Time {
    type Value = Duration;

    fn parse(&self, raw: &Raw) -> Result<Duration, String> {
        let text = text_of(raw)?;
        let whole: Option<u64> = within(&self.range, text.parse().ok());
        whole.map(|whole| self.duration(whole)).ok_or_else(|| {
            let (value, least, most) = (quote_number(raw, &text), self.range.start(), self.range.end());
            format!("{value} is not a whole number of {} from {least} to {most}", self.unit)
        })
    }

    fn display(&self, value: &Duration) -> DisplayValue {
        let milliseconds = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
        DisplayValue::Integer(milliseconds / self.milliseconds)
    }
}

fn within<T: UnsignedInteger>(range: &RangeInclusive<T>, number: Option<u64>) -> Option<T> {
    T::try_from(number?).ok().filter(|number| range.contains(number))
}

fn quote_number(raw: &Raw, text: &str) -> String {
    if matches!(raw, Raw::Integer(_)) { text.to_owned() } else { quote(text) }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let (number, unit) = text.split_at(text.len() - digits.len());
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn in_largest_unit(bytes: impl TryInto<u64>) -> String {
    let bytes = bytes.try_into().unwrap_or(u64::MAX);
    let unit = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")]
        .into_iter()
        .find(|(factor, _)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| bytes.to_string(), |(factor, name)| format!("{} {name}", bytes / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    #[test]
    fn size_is_in_bytes_or_has_a_unit() {
        let kind = Size(0..=2 * GIB);
        let read =
            ["0", "4096", "4096 B", "4 KiB", "4KiB", "3 MiB", "2 GiB"].map(|size| kind.parse(&text(size)));
        assert_eq!(read, [0, 4096, 4096, 4096, 4096, 3 * MIB, 2 * GIB].map(Ok));
        assert_eq!(kind.parse(&Raw::Integer(77)), Ok(77));
    }

    #[test]
    fn invalid_size_is_refused_with_its_range() {
        let kind = Size(KIB..=64 * MIB);
        let refused =
            ["", "lots", "4 MB", "1.5 MiB", "-1", "99999999999999999999", "17179869184 GiB", "65 MiB"];
        for size in refused {
            let expected =
                format!("{size:?} is not a size from 1 KiB to 64 MiB, such as 65536 or \"64 KiB\"");
            assert_eq!(kind.parse(&text(size)), Err(expected));
        }
        let expected = "1 is not a size from 1 KiB to 64 MiB, such as 65536 or \"64 KiB\"".to_owned();
        assert_eq!(kind.parse(&Raw::Integer(1)), Err(expected));
    }

    #[test]
    fn count_outside_its_range_is_refused() {
        let kind = Count(4..=1000_u32);
        assert_eq!(kind.parse(&Raw::Integer(4)), Ok(4));
        assert_eq!(kind.parse(&text("1000")), Ok(1000));
        let refused = [Raw::Integer(3), Raw::Integer(-4), text("1001"), text("four"), text("4294967300")];
        let expected = ["3", "-4", "\"1001\"", "\"four\"", "\"4294967300\""]
            .map(|value| Err(format!("{value} is not a whole number from 4 to 1000")));
        assert_eq!(refused.map(|raw| kind.parse(&raw)), expected);
    }

    #[test]
    fn duration_has_the_unit_of_its_setting() {
        assert_eq!(Time::seconds(1..=60).parse(&Raw::Integer(60)), Ok(Duration::from_mins(1)));
        assert_eq!(Time::milliseconds(1..=60).parse(&text("60")), Ok(Duration::from_millis(60)));
        let expected = Err("\"10s\" is not a whole number of seconds from 1 to 60".to_owned());
        assert_eq!(Time::seconds(1..=60).parse(&text("10s")), expected);
        assert_eq!(Time::seconds(1..=60).display(&Duration::from_mins(1)), DisplayValue::Integer(60));
    }

    #[test]
    fn value_of_another_type_is_refused_by_type() {
        let kind = Count(1..=2_u32);
        let refused = [Raw::List(vec![]), Raw::Unsupported("a boolean")].map(|raw| kind.parse(&raw));
        let expected = [
            "expected a single value, found a list",
            "expected text, a whole number or a list of text, found a boolean",
        ];
        assert_eq!(refused, expected.map(|message| Err(message.to_owned())));
    }
}
