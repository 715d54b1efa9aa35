//! Invalid parameters of each method.

use serde_json::{Value, json};

use super::{legacy, modern};
use crate::case::Case;

/// Values of other types than string.
fn no_texts() -> [(&'static str, Value); 5] {
    [
        ("null", Value::Null),
        ("a number", json!(7)),
        ("a list", json!(["test://plain"])),
        ("an object", json!({"uri": "x"})),
        ("true", json!(true)),
    ]
}

const NO_URIS: [&str; 16] = [
    "",
    " ",
    "plain",
    "/absolute/path",
    "//host/path",
    "test:// space",
    "test://a\nb",
    "test://%zz",
    "test://%",
    "1test://x",
    "test//x",
    "http://[::1",
    "http://host:port/",
    "test://量子",
    "test://a\u{0}b",
    "test://{city}",
];

const UNKNOWN_URIS: [&str; 8] = [
    "test://none",
    "TEST://plain",
    "test://plain/",
    "test://plain?x",
    "test://plain#x",
    "test://escaped name",
    "test://escaped%20Name",
    "urn:isbn:0",
];

const NO_CURSORS: [&str; 8] =
    ["", "0", "10", "abc", "AAAA", "%00", "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ", "量"];

/// A case of each era with these parameters.
fn both(name: &str, method: &str, params: &Value) -> [Case; 2] {
    [
        modern(format!("{method}: {name}, modern"), method, params),
        legacy(format!("{method}: {name}, legacy"), "2025-11-25", method, params),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let lists = ["resources/list", "resources/templates/list", "prompts/list", "tools/list"];
    for method in lists {
        for (what, value) in no_texts() {
            cases.extend(both(&format!("cursor is {what}"), method, &json!({"cursor": value})));
        }
        for cursor in NO_CURSORS {
            cases.extend(both(&format!("cursor {cursor:?}"), method, &json!({"cursor": cursor})));
        }
        cases.extend(both("an unknown member", method, &json!({"limit": 5})));
    }
    for method in ["resources/read", "resources/subscribe"] {
        cases.extend(both("no uri", method, &json!({})));
        for (what, value) in no_texts() {
            cases.extend(both(&format!("uri is {what}"), method, &json!({"uri": value})));
        }
        for uri in NO_URIS.into_iter().chain(UNKNOWN_URIS) {
            // A header cannot contain control characters, so such a name is encoded in base64.
            let [modern, legacy] = both(&format!("uri {uri:?}"), method, &json!({"uri": uri}));
            let clean = uri.chars().all(|char| !char.is_control()) && uri.trim() == uri;
            cases.push(legacy);
            if clean {
                cases.push(modern);
            }
        }
        cases.extend(both("a member too many", method, &json!({"uri": "test://plain", "extra": 1})));
        let long = format!("test://{}", "x".repeat(8_192));
        cases.push(legacy(format!("{method}: a long uri"), "2025-06-18", method, &json!({"uri": long})));
    }
    cases.extend(prompts());
    cases.extend(completions());
    cases.extend(tools());
    cases
}

fn prompts() -> Vec<Case> {
    let get = "prompts/get";
    let mut cases: Vec<Case> = both("no name", get, &json!({})).into();
    for (what, value) in no_texts() {
        cases.extend(both(&format!("name is {what}"), get, &json!({"name": value})));
        let arguments = json!({"name": "arguments", "arguments": {"topic": value}});
        cases.extend(both(&format!("an argument is {what}"), get, &arguments));
        if !value.is_object() {
            let arguments = json!({"name": "arguments", "arguments": value});
            cases.extend(both(&format!("arguments are {what}"), get, &arguments));
        }
    }
    for name in ["", "none", "Simple", "simple ", "sim", "__proto__"] {
        if name.trim() == name {
            cases.extend(both(&format!("name {name:?}"), get, &json!({"name": name})));
        }
    }
    for (what, arguments) in [
        ("a missing argument", json!({})),
        ("a missing argument among others", json!({"depth": "x"})),
        ("an unknown argument", json!({"topic": "a", "other": "b"})),
        ("only an unknown argument", json!({"other": "b"})),
        ("an empty argument", json!({"topic": ""})),
        ("an argument that is a template", json!({"topic": "{{ depth }} {% if x %}"})),
        ("an argument with quotes", json!({"topic": "\"'\\\n</script>"})),
        ("an argument with NUL", json!({"topic": "a\u{0}b"})),
        ("a long argument", json!({"topic": "x".repeat(20_000)})),
    ] {
        cases.extend(both(what, get, &json!({"name": "arguments", "arguments": arguments})));
    }
    cases.extend(both(
        "arguments of a prompt without any",
        get,
        &json!({"name": "simple", "arguments": {"a": "b"}}),
    ));
    cases
}

fn completions() -> Vec<Case> {
    let complete = "completion/complete";
    let prompt = json!({"type": "ref/prompt", "name": "arguments"});
    let template = json!({"type": "ref/resource", "uri": "weather://{city}"});
    let topic = |value: &str| json!({"name": "topic", "value": value});
    let mut cases = Vec::new();
    for (what, params) in [
        ("nothing", json!({})),
        ("no argument", json!({"ref": prompt})),
        ("no ref", json!({"argument": topic("p")})),
        ("ref is a text", json!({"ref": "arguments", "argument": topic("p")})),
        ("ref without type", json!({"ref": {"name": "arguments"}, "argument": topic("p")})),
        ("unknown type", json!({"ref": {"type": "ref/tool", "name": "arguments"}, "argument": topic("p")})),
        ("prompt ref without name", json!({"ref": {"type": "ref/prompt"}, "argument": topic("p")})),
        (
            "prompt ref with title",
            json!({"ref": {"type": "ref/prompt", "name": "arguments", "title": "t"}, "argument": topic("p")}),
        ),
        ("unknown prompt", json!({"ref": {"type": "ref/prompt", "name": "none"}, "argument": topic("p")})),
        ("unknown argument", json!({"ref": prompt, "argument": {"name": "other", "value": "p"}})),
        ("argument without completions", json!({"ref": prompt, "argument": {"name": "depth", "value": ""}})),
        ("argument is a text", json!({"ref": prompt, "argument": "topic"})),
        ("argument without value", json!({"ref": prompt, "argument": {"name": "topic"}})),
        ("argument without name", json!({"ref": prompt, "argument": {"value": "p"}})),
        ("value is a number", json!({"ref": prompt, "argument": {"name": "topic", "value": 1}})),
        ("every value", json!({"ref": prompt, "argument": topic("")})),
        ("some values", json!({"ref": prompt, "argument": topic("park")})),
        ("values in other case", json!({"ref": prompt, "argument": topic("PAR")})),
        ("no value", json!({"ref": prompt, "argument": topic("zzz")})),
        (
            "with a context",
            json!({"ref": prompt, "argument": topic("s"), "context": {"arguments": {"depth": "x"}}}),
        ),
        ("context is a text", json!({"ref": prompt, "argument": topic("s"), "context": "x"})),
        (
            "context with a number",
            json!({"ref": prompt, "argument": topic("s"), "context": {"arguments": {"depth": 1}}}),
        ),
        ("a template", json!({"ref": template, "argument": {"name": "city", "value": "be"}})),
        ("a template in full", json!({"ref": template, "argument": {"name": "city", "value": "berlin"}})),
        ("unknown variable", json!({"ref": template, "argument": {"name": "town", "value": "be"}})),
        (
            "unknown template",
            json!({"ref": {"type": "ref/resource", "uri": "weather://{town}"}, "argument": {"name": "town", "value": ""}}),
        ),
        (
            "a resource",
            json!({"ref": {"type": "ref/resource", "uri": "test://plain"}, "argument": {"name": "a", "value": ""}}),
        ),
        (
            "resource ref without uri",
            json!({"ref": {"type": "ref/resource"}, "argument": {"name": "a", "value": ""}}),
        ),
        (
            "resource ref is no uri",
            json!({"ref": {"type": "ref/resource", "uri": "plain"}, "argument": {"name": "a", "value": ""}}),
        ),
        ("a member too many", json!({"ref": prompt, "argument": topic("p"), "extra": true})),
    ] {
        cases.extend(both(what, complete, &params));
    }
    cases
}

fn tools() -> Vec<Case> {
    let call = "tools/call";
    let mut cases = Vec::new();
    for (what, params) in [
        ("no name", json!({})),
        ("an unknown tool", json!({"name": "search"})),
        ("arguments are a list", json!({"name": "search", "arguments": []})),
        ("arguments are a text", json!({"name": "fetch", "arguments": "x"})),
        ("name is a number", json!({"name": 1})),
        ("name is empty", json!({"name": ""})),
        ("a task", json!({"name": "search", "arguments": {}, "task": {"ttl": 1000}})),
    ] {
        cases.extend(both(what, call, &params));
    }
    cases
}
