//! Plain scalars by the core schema of YAML 1.2 (section 10.3.2).

use crate::value::Value;

/// The value of a plain scalar; `None` for a number that JSON does not have.
pub(crate) fn resolve(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return None,
        _ => {}
    }
    if matches!(text.strip_prefix(['+', '-']).unwrap_or(text), ".inf" | ".Inf" | ".INF") {
        return None;
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|digits| is_digits(digits, 8)) {
        return radix(digits, 8);
    }
    if let Some(digits) = text.strip_prefix("0x").filter(|digits| is_digits(digits, 16)) {
        return radix(digits, 16);
    }
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => ("-", &text[1..]),
        Some(b'+') => ("", &text[1..]),
        _ => ("", text),
    };
    if is_digits(unsigned, 10) {
        let significant = unsigned.trim_start_matches('0');
        let digits = if significant.is_empty() { "0" } else { significant };
        return finite(text).map(|_| Value::Number(format!("{sign}{digits}")));
    }
    if is_float(unsigned) { finite(text).map(float) } else { Some(Value::String(text.to_owned())) }
}

fn is_digits(text: &str, base: u32) -> bool {
    !text.is_empty() && text.chars().all(|digit| digit.is_digit(base))
}

/// Whether it matches `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => is_digits(fraction, 10),
        Some((whole, fraction)) => is_digits(whole, 10) && (fraction.is_empty() || is_digits(fraction, 10)),
        None => is_digits(mantissa, 10),
    };
    is_mantissa && exponent.is_none_or(|exponent| is_digits(exponent, 10))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn float(number: f64) -> Value {
    serde_json::Number::from_f64(number).map_or(Value::Null, |number| Value::Number(number.to_string()))
}

fn radix(digits: &str, base: u32) -> Option<Value> {
    u128::from_str_radix(digits, base).ok().map(|number| Value::Number(number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn plain_scalars_have_the_types_of_the_core_schema() {
        for (text, json) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nULL", "\"nULL\""),
            ("true", "true"),
            ("False", "false"),
            ("yes", "\"yes\""),
            ("off", "\"off\""),
            ("7", "7"),
            ("-7", "-7"),
            ("+7", "7"),
            ("007", "7"),
            ("0", "0"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("0o17", "15"),
            ("0o18", "\"0o18\""),
            ("0xff", "255"),
            ("0x", "\"0x\""),
            ("0b1", "\"0b1\""),
            ("1.0", "1.0"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("-.5e1", "-5.0"),
            ("1e3", "1000.0"),
            ("1_000", "\"1_000\""),
            ("1.2.3", "\"1.2.3\""),
            ("e3", "\"e3\""),
            (".", "\".\""),
            ("-", "\"-\""),
            ("+-5", "\"+-5\""),
            ("2026-01-01", "\"2026-01-01\""),
            ("1:30", "\"1:30\""),
            ("<<", "\"<<\""),
        ] {
            let resolved = resolve(text).map(|value| serde_json::to_string(&value).unwrap());
            assert_eq!(resolved.as_deref(), Some(json), "{text}");
        }
        for text in [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "-1e999"] {
            assert_eq!(resolve(text), None, "{text}");
        }
        assert_eq!(resolve(&"9".repeat(400)), None);
    }
}
