//! Each text field of the administration API with every kind of invalid value.

use serde_json::Value;

use super::{Fixture, invalid};

/// A text member, and the JSON around its value.
struct Field {
    call: (&'static str, &'static str),
    before: &'static str,
    after: &'static str,
    called: &'static str,
    least: usize,
    most: usize,
}

const fn field(
    call: (&'static str, &'static str),
    before: &'static str,
    called: &'static str,
    least: usize,
    most: usize,
) -> Field {
    Field { call, before, after: "}", called, least, most }
}

const NAME: &str = "a name or title";
const RESOURCE: (&str, &str) = ("PUT", "/agents/a/resources?uri=x:1");
const FIELDS: [Field; 13] = [
    field(("POST", "/tenants"), r#"{"id":"x","name":"#, NAME, 1, 512),
    field(("PATCH", "/tenants/acme"), r#"{"name":"#, NAME, 1, 512),
    field(("POST", "/agents"), r#"{"id":"x","tenant":"acme","name":"#, NAME, 1, 512),
    field(("POST", "/agents"), r#"{"id":"x","tenant":"acme","title":"#, NAME, 1, 512),
    field(("POST", "/agents"), r#"{"id":"x","tenant":"acme","instructions":"#, "instructions", 0, 65_536),
    field(("PATCH", "/agents/a"), r#"{"title":"#, NAME, 1, 512),
    field(("PATCH", "/agents/a"), r#"{"instructions":"#, "instructions", 0, 65_536),
    field(("POST", "/agents/a/keys"), r#"{"name":"#, NAME, 1, 512),
    field(RESOURCE, r#"{"contents":[],"name":"#, NAME, 1, 512),
    field(RESOURCE, r#"{"name":"n","contents":[],"title":"#, NAME, 1, 512),
    field(RESOURCE, r#"{"name":"n","contents":[],"description":"#, "a description", 0, 16_384),
    field(RESOURCE, r#"{"name":"n","contents":[],"mimeType":"#, "a MIME type", 1, 255),
    Field {
        call: RESOURCE,
        before: r#"{"name":"n","contents":[{"text":"","mimeType":"#,
        after: "}]}",
        called: "a MIME type",
        least: 1,
        most: 255,
    },
];

impl Field {
    /// The body with `value` in place of the text.
    fn body(&self, value: &str) -> String {
        format!("{}{value}{}", self.before, self.after)
    }

    /// The problem about the value itself, after its path.
    fn wrong(&self, what: &str, column: usize) -> Value {
        let body: Value = serde_json::from_str(&self.body("\"<here>\"")).unwrap();
        self.at(&format!("{}: {what}", path_to(&body, "<here>").unwrap()), column)
    }

    /// A problem at the end of the first `column` bytes of the value.
    fn at(&self, what: &str, column: usize) -> Value {
        invalid(&format!("{what} at line 1 column {}", self.before.len() + column))
    }
}

/// The path of a text in a body.
fn path_to(value: &Value, wanted: &str) -> Option<String> {
    match value {
        Value::String(text) => (text == wanted).then(String::new),
        Value::Array(items) => {
            let mut found =
                items.iter().enumerate().filter_map(|(at, item)| Some((at, path_to(item, wanted)?)));
            found.next().map(|(at, rest)| {
                let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
                format!("[{at}]{dot}{rest}")
            })
        }
        Value::Object(members) => {
            let mut found =
                members.iter().filter_map(|(name, member)| Some((name, path_to(member, wanted)?)));
            let (name, rest) = found.next()?;
            let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
            Some(format!("{name}{dot}{rest}"))
        }
        _ => None,
    }
}

#[tokio::test]
async fn invalid_text_is_refused_in_every_field() {
    let mut fixture = Fixture::new().await;
    for field in FIELDS {
        let Field { called, least, most, .. } = field;
        let (of_nul, of_length) = (
            format!("{called} contains a NUL character"),
            format!("{called} must have {least} to {most} bytes"),
        );
        let surrogate = "the body contains a lone surrogate or a number out of range";
        let no_text = |what: &str| format!("invalid type: {what}, expected a string");
        let long = format!("\"{}\"", "ü".repeat(most / 2 + 1));
        let length = (most / 2 + 1) * 2;
        let mut cases = vec![
            (r#""a\u0000b""#, field.wrong(&of_nul, 11)),
            (r#""\ud800""#, field.at(surrogate, 8)),
            (r#""\udc00\ud800""#, field.at(surrogate, 7)),
            (&long, field.wrong(&format!("{of_length}, not {length}"), long.len() + 1)),
            ("5", field.wrong(&no_text("integer `5`"), 1)),
            ("-5", field.wrong(&no_text("integer `-5`"), 2)),
            ("1.5", field.wrong(&no_text("floating point `1.5`"), 3)),
            ("1e999", field.at(surrogate, 5)),
            ("true", field.wrong(&no_text("boolean `true`"), 4)),
            ("[]", field.wrong(&no_text("sequence"), 0)),
            (r#"{"a":1}"#, field.wrong(&no_text("map"), 0)),
        ];
        if least > 0 {
            cases.push((r#""""#, field.wrong(&format!("{of_length}, not 0"), 3)));
        }
        for (value, expected) in cases {
            let answer = fixture.admin(field.call, field.body(value)).await;
            assert_eq!(answer, expected, "{:?} {}", field.call, field.body(value));
        }
    }
    assert_eq!(fixture.check_unaffected().await, 13 * 12 - 3);
}
