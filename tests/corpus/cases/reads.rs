//! Answers to valid requests, in every revision.

use serde_json::json;

use super::fixture::RESOURCES;
use super::{LEGACY, MODERN, in_all_revisions, legacy, message, modern, post, with_meta};
use crate::case::{Case, Source};

/// URIs that templates serve.
const RENDERED: [&str; 19] = [
    "weather://beijing",
    "weather://paris",
    "weather://",
    "weather://a%20b",
    "weather://%E5%8C%97%E4%BA%AC",
    "weather://%22%7B%7D",
    "weather://a/b/c",
    "weather://rome/monday",
    "weather://rome/",
    "weather://{city}",
    "path://a/b/c",
    "path://",
    "path://a%2Fb?c=d#e",
    "find://x?q=1&lang=en",
    "find://x?lang=en&q=1",
    "find://x?q=1",
    "find://x",
    "frag://x#there",
    "frag://x",
];

const PROMPTS: [(&str, &str); 16] = [
    ("simple", "{}"),
    ("arguments", r#"{"topic":"bees"}"#),
    ("arguments", r#"{"topic":"量子","depth":"flat"}"#),
    ("image", "{}"),
    ("audio", "{}"),
    ("link", "{}"),
    ("embedded", "{}"),
    ("reference", "{}"),
    ("dangling", "{}"),
    ("annotated", "{}"),
    ("logic", "{}"),
    ("logic", r#"{"level":"high"}"#),
    ("logic", r#"{"level":"  LOW "}"#),
    ("logic", r#"{"level":""}"#),
    ("提示", r#"{"n":"1"}"#),
    ("提示", "{}"),
];

const LISTS: [&str; 4] = ["resources/list", "resources/templates/list", "prompts/list", "tools/list"];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for uri in RESOURCES {
        cases.extend(in_all_revisions(&format!("read {uri}"), "resources/read", &json!({"uri": uri})));
    }
    for uri in RENDERED {
        cases.extend(in_all_revisions(&format!("render {uri}"), "resources/read", &json!({"uri": uri})));
    }
    for (name, arguments) in PROMPTS {
        let params =
            json!({"name": name, "arguments": serde_json::from_str::<serde_json::Value>(arguments).unwrap()});
        cases.extend(in_all_revisions(&format!("prompt {name} {arguments}"), "prompts/get", &params));
    }
    cases.push(modern("prompt without arguments", "prompts/get", &json!({"name": "simple"})));
    cases.extend(pages());
    for agent in ["open", "empty", "theirs"] {
        for method in LISTS.into_iter().chain(["server/discover"]) {
            let key = if agent == "open" { "mcp" } else { agent };
            let message = message(method, &with_meta(&json!({})));
            let case = post(format!("{method} of {agent}"), agent, &message);
            cases.push(case.key(key).header("mcp-protocol-version", MODERN).header("mcp-method", method));
        }
    }
    for id in [
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_993_i64),
        json!("text"),
        json!("\"\\/\u{8}🐝"),
        json!(""),
    ] {
        for version in LEGACY {
            let read = json!({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": "test://plain"}});
            let case = post(format!("id {id}, {version}"), "alpha", &read).key("mcp");
            cases.push(case.header("mcp-protocol-version", version));
        }
    }
    cases
}

/// All pages of a list, by their cursors, and those cursors in requests for other lists.
fn pages() -> Vec<Case> {
    let list = |name: &str, method: &str, cursor: &str| {
        modern(name, method, &json!({"cursor": format!("<<{cursor}>>")}))
    };
    let next = Source::Member("/result/nextCursor");
    vec![
        modern("first page", "resources/list", &json!({})).capture("page-2", next),
        list("second page", "resources/list", "page-2").capture("page-3", next),
        list("third page", "resources/list", "page-3"),
        list("second page again", "resources/list", "page-2"),
        list("a cursor of another list", "prompts/list", "page-2"),
        legacy(
            "a page in an older revision",
            "2025-03-26",
            "resources/list",
            &json!({"cursor": "<<page-2>>"}),
        ),
        legacy("a cursor cut short", "2025-11-25", "resources/list", &json!({"cursor": "<<page-2>>x"})),
        modern("prompts, first page", "prompts/list", &json!({})).capture("prompts-2", next),
        list("prompts, second page", "prompts/list", "prompts-2"),
        post(
            "a cursor at another agent",
            "open",
            &message("resources/list", &with_meta(&json!({"cursor": "<<page-2>>"}))),
        )
        .key("mcp")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "resources/list"),
    ]
}
