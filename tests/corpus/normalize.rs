//! What differs from run to run is replaced by a name: keys, ids, times, cursors, and the headers of transport.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::case::{Case, Source};

/// Headers of the connection, and those whose value says nothing about the answer.
const DROPPED: [&str; 5] = ["connection", "content-length", "date", "keep-alive", "transfer-encoding"];

const SESSION: &str = "mcp-session-id";

/// Dates before this one stand in the corpus itself and are compared; later ones come from the clock.
const FIXED_BEFORE: &str = "2026-08";

/// What is replaced, in this order, in every answer.
static VOLATILE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\b(?:bak|oag|wag)_[0-9A-Za-z]{49}\b", "<key>"),
        (r#""display":"(?:bak|oag)_[0-9A-Za-z]{8}""#, r#""display":"<display>""#),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r#""nextCursor":"[^"]+""#, r#""nextCursor":"<cursor>""#),
        (r#""lastUsedAt":(?:null|"[^"]*")"#, r#""lastUsedAt":"<sometimes>""#),
        (r#""(hash|head|previous)":"[0-9a-f]{64}""#, r#""$1":"<hash>""#),
        // The ids that the gateway gives to requests.
        (r"\b[0-9a-f]{32}\b", "<request-id>"),
    ]
    .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
    .into()
});

static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z").unwrap());

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Values that answers gave, by the names that requests use.
pub(crate) struct Variables(BTreeMap<&'static str, String>);

impl Variables {
    pub(crate) fn new(operator: &str) -> Self {
        Self(BTreeMap::from([("operator", operator.to_owned())]))
    }

    /// A text of a request with the variables' values in their places.
    pub(crate) fn insert(&self, text: &str) -> String {
        let mut inserted = text.to_owned();
        for (name, value) in &self.0 {
            inserted = inserted.replace(&format!("<<{name}>>"), value);
        }
        inserted
    }

    pub(crate) fn capture(&mut self, case: &Case, answer: &Answer) {
        for (name, source) in &case.captures {
            let value = match source {
                Source::Member(pointer) => serde_json::from_str::<Value>(&answer.body)
                    .ok()
                    .and_then(|body| body.pointer(pointer)?.as_str().map(ToOwned::to_owned)),
                Source::Header(header) => {
                    answer.headers.iter().find(|(name, _)| name == header).map(|(_, value)| value.clone())
                }
            };
            let value = value.unwrap_or_else(|| panic!("{}: no {source:?} in {answer:?}", case.name));
            self.0.insert(name, value);
        }
    }

    pub(crate) fn normalize(&self, answer: Answer) -> Answer {
        let mut headers: Vec<_> = answer
            .headers
            .into_iter()
            .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
            .map(|(name, value)| {
                let value = self.text(value);
                // Random, unless an earlier answer gave it.
                let random = name == SESSION && !value.starts_with("<<");
                (name, if random { "<session>".to_owned() } else { value })
            })
            .collect();
        headers.sort();
        Answer { status: answer.status, headers, body: self.text(answer.body) }
    }

    fn text(&self, mut text: String) -> String {
        for (name, value) in &self.0 {
            text = text.replace(value, &format!("<<{name}>>"));
        }
        for (pattern, name) in VOLATILE.iter() {
            text = pattern.replace_all(&text, *name).into_owned();
        }
        let time = |found: &Captures<'_>| {
            let found = &found[0];
            if found < FIXED_BEFORE { found.to_owned() } else { "<time>".to_owned() }
        };
        TIME.replace_all(&text, time).into_owned()
    }
}
