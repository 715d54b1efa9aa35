//! Ids of requests.

use serde_json::value::RawValue;

use super::{MAX_ID_BYTES, RequestId};

fn echo(text: &str) -> Option<String> {
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    RequestId::read(&raw).map(|id| id.to_owned().as_id().as_json().to_owned())
}

#[test]
fn strings_and_integers_are_returned_unchanged() {
    let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES));
    for id in [
        "0",
        "1",
        "-7",
        "-0",
        "9007199254740993",
        "123456789012345678901234567890",
        "\"\"",
        "\"a\"",
        "\"1\"",
        r#""\u00e4\/\n""#,
        r#""\ud800""#,
        "\"ä\"",
        &long,
    ] {
        assert_eq!(echo(id).as_deref(), Some(id));
    }
}

#[test]
fn everything_else_is_no_id() {
    let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES + 1));
    let big = "1".repeat(MAX_ID_BYTES + 1);
    for bad in ["null", "true", "false", "1.0", "1.5", "1e3", "1E3", "-1.0", "[]", "{}", "[1]", &long, &big] {
        assert_eq!(echo(bad), None, "{bad}");
    }
}
