//! The comparison of what an agent with hidden definitions and a twin without them answer.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Caller;
use super::published::MODIFIED;
use super::step::{List, uris};
use crate::support::answers::exact;
use crate::support::app::Replica;
use crate::support::events::{Events, try_listen};
use crate::support::http::Answer;
use crate::tenancy::probes::{Probe, message, modern};

/// How the URIs of skills begin.
const SKILL_URIS: &str = "skill://";

pub(super) async fn post(replica: &Replica, (slug, key): (&str, Option<&str>), message: &Value) -> Answer {
    Probe::post("/{}/mcp", message).send(&replica.http, key, slug).await
}

pub(super) async fn ask(
    replica: &Replica,
    (slug, key): (&str, Option<&str>),
    (method, params): (&'static str, &Value),
    is_modern: bool,
) -> Answer {
    if is_modern {
        modern(method, params.clone()).send(&replica.http, key, slug).await
    } else {
        post(replica, (slug, key), &message(method, params.clone())).await
    }
}

/// The cursor of the next page of a method or of a tool.
fn next_cursor(answer: &Value) -> Option<String> {
    let result = &answer["result"];
    let shown = || serde_json::from_str::<Value>(result["content"][0]["text"].as_str()?).ok();
    let cursor = result.get("nextCursor").cloned();
    let cursor = cursor.or_else(|| shown()?.get("nextCursor").cloned());
    cursor.map(|cursor| cursor.as_str().unwrap().to_owned())
}

/// A text without the times of change of skills and their directories, which cannot be set and differ between agents.
fn without_times(text: &str) -> String {
    let mut parts = text.split("lastModified");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Quoted once in a result, and twice in a text that shows one.
        let start = part.find(|character: char| character.is_ascii_digit()).unwrap();
        let (before, rest) = part.split_at(start);
        let (time, after) = rest.split_at(rest.find('Z').unwrap() + 1);
        let is_set = time == MODIFIED;
        assert!(is_set || OffsetDateTime::parse(time, &Rfc3339).is_ok(), "{time}");
        let shown = if is_set { time } else { "<time>" };
        out.extend(["lastModified", before, shown, after]);
    }
    out
}

/// The whole answer, with the position in the place of a cursor, whose tag differs between agents.
fn comparable(answer: &Answer) -> Value {
    let mut whole = exact(answer);
    if answer.text().contains(SKILL_URIS) {
        whole = serde_json::from_str(&without_times(&whole.to_string())).unwrap();
    }
    if let Some(cursor) = next_cursor(&whole["body"]) {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        let position = std::str::from_utf8(&bytes[16..]).unwrap();
        whole = serde_json::from_str(&whole.to_string().replace(&cursor, position)).unwrap();
    }
    whole["length"] = json!(answer.body.len());
    whole
}

pub(super) fn assert_same(caller: &Caller, asked: (&str, &Value), mixed: &Answer, twin: &Answer) {
    assert_eq!(comparable(mixed), comparable(twin), "{:?} asked {asked:?}", caller.labels);
}

pub(super) async fn compare_pages(replica: &Replica, caller: &Caller, list: List, is_modern: bool) -> usize {
    let (mut cursors, mut pages) = ([None, None], 0);
    loop {
        let [(method, first), (_, second)] = cursors.map(|cursor| list.page(cursor));
        let mixed = ask(replica, caller.at(0), (method, &first), is_modern).await;
        let twin = ask(replica, caller.at(1), (method, &second), is_modern).await;
        assert_same(caller, (method, &first), &mixed, &twin);
        pages += 1;
        cursors = [mixed, twin].map(|answer| next_cursor(&answer.json()));
        if cursors[0].is_none() {
            return pages;
        }
    }
}

pub(super) async fn compare_subscription(replica: &Replica, caller: &Caller, uri: &str) -> usize {
    let Some([mixed, twin]) = &caller.sessions else { return 0 };
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let params = json!({"uri": uri});
        let answers = [
            mixed.call(replica, method, params.clone()).await,
            twin.call(replica, method, params.clone()).await,
        ];
        assert_same(caller, (method, &params), &answers[0], &answers[1]);
    }
    2
}

/// The acknowledgement of a stream names the URIs that can be read.
pub(super) async fn compare_stream(replica: &Replica, caller: &Caller) -> usize {
    if caller.sessions.is_none() {
        return 0;
    }
    let uris = uris();
    let acknowledged = async |agent| {
        let (slug, key) = caller.at(agent);
        let filter = json!({"resourceSubscriptions": uris});
        let opened = try_listen(replica, slug, key.unwrap(), json!(1), filter).await;
        Events::of(opened).next().await.unwrap().json()
    };
    assert_eq!(acknowledged(0).await, acknowledged(1).await, "{:?} listens", caller.labels);
    1
}
