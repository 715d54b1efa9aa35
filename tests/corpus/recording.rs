//! The files of recorded answers: one case per line, one file per group.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::case::Case;
use crate::normalize::Answer;

/// The number of printed characters of a differing line, and how many of them precede the difference.
const CLIPPED: usize = 240;
const CONTEXT: usize = 40;

#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    request: Request<'a>,
    answer: Recorded<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Recorded<'a> {
    status: u16,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
}

/// The exact body: JSON of one line unchanged, anything else as a JSON string.
fn body(text: &str) -> Option<Box<RawValue>> {
    if text.is_empty() {
        return None;
    }
    let json = serde_json::from_str::<&RawValue>(text).ok();
    // Other bodies, and JSON strings, would be ambiguous.
    let json =
        json.filter(|json| json.get().len() == text.len() && !text.contains('\n') && !text.starts_with('"'));
    let raw = json.map_or_else(|| serde_json::to_string(text).unwrap(), |json| json.get().to_owned());
    Some(RawValue::from_string(raw).unwrap())
}

/// A case with its answer as one line of JSON.
pub(crate) fn line(case: &Case, answer: &Answer) -> String {
    let headers = case.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let request = Request {
        method: &case.method,
        path: &case.path,
        headers,
        body: body(&String::from_utf8_lossy(&case.body)),
    };
    let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let recorded = Recorded { status: answer.status, headers, body: body(&answer.body) };
    serde_json::to_string(&Line { case: &case.name, request, answer: recorded }).unwrap()
}

fn file(group: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/recorded").join(format!("{group}.jsonl"))
}

pub(crate) fn write(group: &str, lines: &[String]) {
    fs::create_dir_all(file(group).parent().unwrap()).unwrap();
    fs::write(file(group), lines.join("\n") + "\n").unwrap();
}

/// Each line that differs from the recorded one, with both.
pub(crate) fn differences(group: &str, lines: &[String]) -> Vec<String> {
    let recorded = fs::read_to_string(file(group)).unwrap_or_default();
    let recorded: Vec<_> = recorded.lines().collect();
    if recorded.len() != lines.len() {
        return vec![format!("{group}: {} cases are recorded, {} were sent", recorded.len(), lines.len())];
    }
    let differ = lines.iter().zip(recorded).filter(|(found, recorded)| *found != recorded);
    differ
        .map(|(found, recorded)| {
            let (from, clip) = (common_prefix(found, recorded), |text: &str, from: usize| {
                text.chars().skip(from).take(CLIPPED).collect::<String>()
            });
            let case = clip(found, 0);
            format!("{case}\n  recorded: …{}\n  found:    …{}\n", clip(recorded, from), clip(found, from))
        })
        .collect()
}

/// The length of the common prefix of two texts in characters, less a few for context.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count().saturating_sub(CONTEXT)
}
