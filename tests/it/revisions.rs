//! Every read case in all five revisions of both eras: complete answers, each validated against its revision's schema.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::answers::exact;
use crate::support::app::{Replica, gateway};

const MODERN: &str = "2026-07-28";
const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// The official schema of a revision.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn of(revision: &str) -> Self {
        let path = format!("{}/tests/schema/{revision}.json", env!("CARGO_MANIFEST_DIR"));
        Self(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    }

    /// Panics if a value does not match a type of the schema.
    pub(crate) fn check(&self, name: &str, value: &Value) {
        let member = if self.0.get("$defs").is_some() { "$defs" } else { "definitions" };
        let mut schema = self.0.clone();
        assert!(schema[member].get(name).is_some(), "{name} is no type of the schema");
        schema["$ref"] = json!(format!("#/{member}/{name}"));
        let validator: Validator = jsonschema::validator_for(&schema).unwrap();
        let complaints: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(complaints.is_empty(), "{name}: {complaints:?} in {value}");
    }
}

/// The agent's manifest: something of every kind, with every member.
fn manifest() -> Value {
    let annotations =
        json!({"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"});
    let icons = json!([{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}]);
    let text = |text: &str| json!({"type": "text", "text": text});
    json!({
        "apiVersion": "waggle/v1",
        "agent": "a",
        "resources": [
            {
                "uri": "x:text", "name": "text", "title": "Text", "description": "d", "mimeType": "text/plain",
                "annotations": annotations, "icons": icons, "_meta": {"example.com/k": [1]},
                "contents": [{"text": "hé\n"}],
            },
            {
                "uri": "x:two", "name": "two", "annotations": {"lastModified": "2026-01-02T03:04:05Z"},
                "contents": [
                    {"uri": "x:two/1", "mimeType": "text/markdown", "text": "#", "_meta": {"example.com/part": [1]}},
                    {"mimeType": "image/png", "blob": "AAH/", "_meta": {}},
                ],
            },
        ],
        "templates": [
            {"uriTemplate": "t://{city}/x/{+path}", "name": "more specific", "template": "x {{ path }}"},
            {
                "uriTemplate": "t://{city}/{+path}", "name": "t", "title": "T", "description": "d",
                "mimeType": "application/json", "annotations": annotations, "icons": icons,
                "_meta": {"example.com/k": {}}, "completions": {"city": ["Berlin", "beijing", "Lisboa"]},
                "template": "{\"city\":{{ city | tojson }},\"path\":{{ path | tojson }}}",
            },
        ],
        "prompts": [
            {"name": "bare", "messages": [{"role": "assistant", "content": text("Hello {% raw %}{{ }}{% endraw %}")}]},
            {
                "name": "full", "title": "F", "description": "d", "icons": icons, "_meta": {"example.com/k": 1},
                "arguments": [
                    {"name": "who", "title": "W", "description": "d", "required": true, "completions": ["Ärzte"]},
                    {"name": "uri", "required": false},
                    {"name": "other"},
                ],
                "messages": [
                    {"role": "user", "content": {
                        "type": "text", "text": "{% if other %}{{ other }}, {% endif %}{{ who }}!",
                        "annotations": {"priority": 1.0}, "_meta": {"example.com/k": null},
                    }},
                    {"role": "user", "content": {"type": "image", "data": "AAH/", "mimeType": "image/png"}},
                    {"role": "user", "content": {"type": "audio", "data": "AAH/", "mimeType": "audio/wav"}},
                    {"role": "user", "content": {
                        "type": "resource_link", "uri": "{{ uri | default('x:text') }}", "name": "linked",
                        "title": "For {{ who }}", "description": "d", "mimeType": "text/plain", "size": 4,
                    }},
                    {"role": "user", "content": {"type": "resource", "resource": {
                        "uri": "x:inline", "mimeType": "text/plain", "text": "for {{ who }}",
                    }}},
                    {"role": "user", "content": {
                        "type": "resource", "resource": {"uri": "x:two"}, "annotations": {"audience": ["user"]},
                    }},
                    {"role": "user", "content": {
                        "type": "resource", "resource": {"uri": "t://{{ who }}/p"},
                    }},
                ],
            },
        ],
    })
}

/// The definitions of a manifest as lists show them.
fn listed(items: &Value, kept_back: &[&str]) -> Value {
    let mut items = items.clone();
    for item in items.as_array_mut().unwrap() {
        for member in kept_back {
            item.as_object_mut().unwrap().remove(*member);
        }
    }
    items
}

/// A case: the request, the type of the result, its expected members, and whether a modern client may cache it.
struct Case {
    method: &'static str,
    params: Value,
    result: &'static str,
    subject: Value,
    cacheable: bool,
}

fn cases(manifest: &Value, revision: &str) -> Vec<Case> {
    let list = |method, result, member: &str, items: Value| Case {
        method,
        params: json!({}),
        result,
        subject: json!({member: items}),
        cacheable: true,
    };
    let mut resources = listed(&manifest["resources"], &["contents"]);
    resources[0]["size"] = json!(4);
    let mut prompts = listed(&manifest["prompts"], &["messages"]);
    prompts[1]["arguments"] = listed(&prompts[1]["arguments"], &["completions"]);
    let templates = listed(&manifest["templates"], &["template", "completions"]);
    let mut cases = vec![
        list("resources/list", "ListResourcesResult", "resources", resources),
        list("resources/templates/list", "ListResourceTemplatesResult", "resourceTemplates", templates),
        list("prompts/list", "ListPromptsResult", "prompts", prompts),
        list("tools/list", "ListToolsResult", "tools", json!([])),
    ];
    let json = "application/json";
    for (uri, contents) in [
        ("x:text", json!([{"uri": "x:text", "mimeType": "text/plain", "text": "hé\n"}])),
        (
            "x:two",
            json!([
                {"uri": "x:two/1", "mimeType": "text/markdown", "text": "#", "_meta": {"example.com/part": [1]}},
                {"uri": "x:two", "mimeType": "image/png", "blob": "AAH/", "_meta": {}},
            ]),
        ),
        (
            "t://S%C3%A3o%22/a/b",
            json!([{"uri": "t://S%C3%A3o%22/a/b", "mimeType": json, "text": "{\"city\":\"São\\\"\",\"path\":\"a/b\"}"}]),
        ),
        ("t://c/x/y/z", json!([{"uri": "t://c/x/y/z", "text": "x y/z"}])),
    ] {
        let subject = json!({"contents": contents});
        let params = json!({"uri": uri});
        cases.push(Case {
            method: "resources/read",
            params,
            result: "ReadResourceResult",
            subject,
            cacheable: true,
        });
    }
    for (params, subject) in prompt_cases(revision) {
        cases.push(Case {
            method: "prompts/get",
            params,
            result: "GetPromptResult",
            subject,
            cacheable: false,
        });
    }
    for (reference, argument, value, values) in [
        (
            json!({"type": "ref/resource", "uri": "t://{city}/{+path}"}),
            "city",
            "B",
            vec!["Berlin", "beijing", "Lisboa"],
        ),
        (json!({"type": "ref/resource", "uri": "t://{city}/{+path}"}), "path", "", vec![]),
        (json!({"type": "ref/prompt", "name": "full"}), "who", "äRZ", vec!["Ärzte"]),
        (json!({"type": "ref/prompt", "name": "full"}), "other", "x", vec![]),
    ] {
        let completion = json!({"values": values, "total": values.len(), "hasMore": false});
        let context = json!({"arguments": {"city": "c"}});
        cases.push(Case {
            method: "completion/complete",
            params: json!({"ref": reference, "argument": {"name": argument, "value": value}, "context": context}),
            result: "CompleteResult",
            subject: json!({"completion": completion}),
            cacheable: false,
        });
    }
    cases
}

fn prompt_cases(revision: &str) -> Vec<(Value, Value)> {
    let message_of = |content: Value| json!({"role": "user", "content": content});
    let embedded = |resource: Value| message_of(json!({"type": "resource", "resource": resource}));
    let sound = if revision < "2025-03-26" {
        embedded(json!({"uri": "prompt-message:2", "mimeType": "audio/wav", "blob": "AAH/"}))
    } else {
        message_of(json!({"type": "audio", "data": "AAH/", "mimeType": "audio/wav"}))
    };
    let link = if revision < "2025-06-18" {
        message_of(json!({"type": "text", "text": "For you (d): x:other"}))
    } else {
        message_of(json!({
            "type": "resource_link", "uri": "x:other", "name": "linked", "title": "For you",
            "description": "d", "mimeType": "text/plain", "size": 4,
        }))
    };
    let mut first = embedded(json!({
        "uri": "x:two/1", "mimeType": "text/markdown", "text": "#", "_meta": {"example.com/part": [1]},
    }));
    let mut second = embedded(json!({"uri": "x:two", "mimeType": "image/png", "blob": "AAH/", "_meta": {}}));
    for part in [&mut first, &mut second] {
        part["content"]["annotations"] = json!({"audience": ["user"]});
    }
    let rendered = "{\"city\":\"you\",\"path\":\"p\"}";
    let messages = json!([
        message_of(json!({
            "type": "text", "text": "<b>, you!", "annotations": {"priority": 1.0}, "_meta": {"example.com/k": null},
        })),
        message_of(json!({"type": "image", "data": "AAH/", "mimeType": "image/png"})),
        sound,
        link,
        embedded(json!({"uri": "x:inline", "mimeType": "text/plain", "text": "for you"})),
        first,
        second,
        embedded(json!({"uri": "t://you/p", "mimeType": "application/json", "text": rendered})),
    ]);
    let arguments = json!({"who": "you", "uri": "x:other", "other": "<b>"});
    let hello = json!({"role": "assistant", "content": {"type": "text", "text": "Hello {{ }}"}});
    vec![
        (json!({"name": "bare"}), json!({"messages": [hello]})),
        (json!({"name": "bare", "arguments": {}}), json!({"messages": [hello]})),
        (json!({"name": "full", "arguments": arguments}), json!({"description": "d", "messages": messages})),
    ]
}

/// Sends a request as a client of the revision, without a session.
async fn call(replica: &Replica, key: &str, revision: &str, method: &str, params: &Value) -> Value {
    let mut params = params.clone();
    let named = params.get("uri").or_else(|| params.get("name")).and_then(Value::as_str).map(str::to_owned);
    let mut headers = vec![
        ("content-type", "application/json"),
        ("x-agent-api-key", key),
        ("mcp-protocol-version", revision),
    ];
    if revision == MODERN {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        headers.push(("mcp-method", method));
        headers.extend(named.as_deref().map(|name| ("mcp-name", name)));
    }
    let body = json!({"jsonrpc": "2.0", "id": "i", "method": method, "params": params}).to_string();
    exact(&replica.http.send("POST", "/a/mcp", &headers, body).await)
}

/// The other members of a result in a revision.
fn complete(revision: &str, case: &Case) -> Value {
    let mut result = case.subject.clone();
    if revision == MODERN {
        let server = json!({"name": "a", "version": env!("CARGO_PKG_VERSION")});
        result["resultType"] = json!("complete");
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server});
        if case.cacheable {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
    }
    result
}

#[tokio::test]
async fn every_read_is_answered_in_all_five_revisions() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let manifest = manifest();
    let applied = replica.admin("PUT", "/agents/a/manifest", Some(manifest.clone())).await;
    assert_eq!(applied.status, 200, "{}", applied.text());
    for revision in REVISIONS {
        let schema = Schema::of(revision);
        let envelope = if revision >= "2025-11-25" { "JSONRPCResultResponse" } else { "JSONRPCResponse" };
        for case in cases(&manifest, revision) {
            // The second answer is the cached result of the first, if it is cached.
            for _ in 0..2 {
                let answer = call(&replica, &key, revision, case.method, &case.params).await;
                let result = complete(revision, &case);
                let expected = json!({"jsonrpc": "2.0", "id": "i", "result": result});
                let (method, params) = (case.method, &case.params);
                assert_eq!(
                    answer,
                    crate::support::answers::message(&expected),
                    "{revision} {method} {params}"
                );
                schema.check(case.result, &result);
                schema.check(envelope, &expected);
            }
        }
    }
}
