//! The objects that the other groups read: two tenants, their agents and keys, and one agent with every kind of
//! definition.

use serde_json::{Value, json};

use super::admin;
use crate::case::{Case, Source};

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// URIs that `alpha` has registered.
pub(crate) const RESOURCES: [&str; 12] = [
    "test://plain",
    "test://empty",
    "test://json",
    "test://blob",
    "test://many",
    "test://annotated",
    "test://iconed",
    "test://unicode",
    "test://escaped%20name",
    "https://example.com/page?q=1#part",
    "urn:isbn:0451450523",
    "file:///docs/intro.md",
];

fn resource(uri: &str, members: Value) -> Value {
    let mut resource =
        json!({"uri": uri, "name": uri.rsplit('/').next().unwrap(), "contents": [{"text": "text"}]});
    resource.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    resource
}

fn resources() -> Vec<Value> {
    let mut resources = vec![
        resource("test://plain", json!({"mimeType": "text/plain", "contents": [{"text": "A plain text."}]})),
        resource("test://empty", json!({"contents": []})),
        resource(
            "test://json",
            json!({"mimeType": "application/json", "contents": [{"text": "{\"a\":[1,2]}"}]}),
        ),
        resource("test://blob", json!({"mimeType": "image/png", "contents": [{"blob": PIXEL}]})),
        resource(
            "test://many",
            json!({"contents": [
                {"uri": "test://many/1", "mimeType": "text/markdown", "text": "# One"},
                {"uri": "test://many/2", "mimeType": "image/png", "blob": PIXEL},
                {"text": "three"},
            ]}),
        ),
        resource(
            "test://annotated",
            json!({"title": "With annotations", "description": "Says for whom it is.", "annotations":
                {"audience": ["user", "assistant"], "priority": 0.25, "lastModified": "2025-01-12T15:00:58Z"},
                "_meta": {"example.com/owner": "docs", "example.com/depth": {"a": [1, null, true]}}}),
        ),
        resource(
            "test://iconed",
            json!({"icons": [{"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"]},
                {"src": format!("data:image/png;base64,{PIXEL}")}]}),
        ),
        resource(
            "test://unicode",
            json!({"name": "智能体", "title": "Ünïcödé 🐝", "description": "a\"b\\c\u{7f}\u{2028}",
                "contents": [{"text": "量子计算 🧪 \" \\ \u{1} \t"}]}),
        ),
        resource("test://escaped%20name", json!({"mimeType": "text/x-rust"})),
        resource("https://example.com/page?q=1#part", json!({"mimeType": "text/html"})),
        resource("urn:isbn:0451450523", json!({"name": "a book"})),
        resource("file:///docs/intro.md", json!({"mimeType": "text/markdown"})),
    ];
    resources.extend((0..14).map(|n| resource(&format!("page://{n:02}"), json!({}))));
    resources
}

fn templates() -> Value {
    json!([
        {"uriTemplate": "weather://{city}", "name": "weather", "mimeType": "application/json",
         "completions": {"city": ["beijing", "berlin", "bern"]},
         "template": "{\"city\":{{ city | tojson }}}"},
        {"uriTemplate": "weather://{city}/{day}", "name": "weather of a day", "title": "A day",
         "template": "{{ city | upper }} on {{ day | default('today') }}{% if day == 'monday' %}!{% endif %}"},
        {"uriTemplate": "weather://paris", "name": "paris", "template": "always paris"},
        {"uriTemplate": "path://{+path}", "name": "reserved expansion", "template": "{{ path }} {{ path | length }}"},
        {"uriTemplate": "find://x{?q,lang}", "name": "form query", "template": "{{ q }}/{{ lang }}"},
        {"uriTemplate": "frag://x{#part}", "name": "fragment", "template": "{{ part }}"},
    ])
}

fn text(role: &str, text: &str) -> Value {
    json!({"role": role, "content": {"type": "text", "text": text}})
}

fn prompts() -> Value {
    let one = |content: Value| json!([{"role": "user", "content": content}]);
    json!([
        {"name": "simple", "description": "Takes no arguments.", "messages": [text("user", "Say hello.")]},
        {"name": "arguments", "title": "Two arguments",
         "arguments": [{"name": "topic", "description": "What about", "required": true,
                        "completions": ["paris", "park", "party", "spare"]}, {"name": "depth"}],
         "messages": [text("user", "About {{ topic }}, {{ depth | default('deep') }}."), text("assistant", "Gladly.")]},
        {"name": "image", "messages": one(json!({"type": "image", "data": PIXEL, "mimeType": "image/png"}))},
        {"name": "audio", "messages": one(json!({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}))},
        {"name": "link", "messages": one(json!({"type": "resource_link", "uri": "test://plain", "name": "plain",
            "description": "A link", "mimeType": "text/plain"}))},
        {"name": "embedded", "messages": one(json!({"type": "resource",
            "resource": {"uri": "test://inline", "mimeType": "text/plain", "text": "inline"}}))},
        {"name": "reference", "messages": one(json!({"type": "resource", "resource": {"uri": "test://plain"}}))},
        {"name": "dangling", "messages": one(json!({"type": "resource", "resource": {"uri": "test://gone"}}))},
        {"name": "annotated", "messages": one(json!({"type": "text", "text": "x",
            "annotations": {"audience": ["assistant"], "priority": 1}, "_meta": {"example.com/a": 1}}))},
        {"name": "logic", "arguments": [{"name": "level"}], "messages": [text("user",
            "{% if level == 'high' %}H{% elif level %}[{{ level | trim | lower }}]{% else %}none{% endif %}\
             {% for item in ['a', 'b'] %}{{ item }}{% endfor %}")]},
        {"name": "提示", "title": "名前", "arguments": [{"name": "n"}], "messages": [text("user", "{{ n }} 🐝")]},
    ])
}

fn key(name: &'static str, agent: &str, body: Value) -> Case {
    let case = admin(format!("key {name}"), "operator", "POST", &format!("/agents/{agent}/keys")).json(&body);
    let id: &'static str = Box::leak(format!("{name}-id").into_boxed_str());
    case.capture(name, Source::Member("/key")).capture(id, Source::Member("/id"))
}

fn agent(id: &str, tenant: &str, members: Value) -> Case {
    let mut body = json!({"id": id, "tenant": tenant});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    admin(format!("agent {id}"), "operator", "POST", "/agents").json(&body)
}

fn owner(name: &'static str, tenant: &str, body: Value) -> Case {
    let case = admin(format!("owner key {name}"), "operator", "POST", &format!("/tenants/{tenant}/keys"));
    let id: &'static str = Box::leak(format!("{name}-id").into_boxed_str());
    case.json(&body).capture(name, Source::Member("/key")).capture(id, Source::Member("/id"))
}

pub(crate) fn cases() -> Vec<Case> {
    let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", "resources": resources(),
        "templates": templates(), "prompts": prompts()});
    let open = json!({"apiVersion": "waggle/v1", "agent": "open",
        "resources": [resource("test://plain", json!({"contents": [{"text": "open to all"}]}))]});
    let put = |name: &str, agent: &str, body: &Value| {
        admin(name, "operator", "PUT", &format!("/agents/{agent}/manifest")).json(body)
    };
    let tenant = |id: &str, name: &str| {
        admin(format!("tenant {id}"), "operator", "POST", "/tenants").json(&json!({"id": id, "name": name}))
    };
    vec![
        tenant("acme", "Acme"),
        tenant("globex", "Globex"),
        agent(
            "alpha",
            "acme",
            json!({"name": "Alpha", "title": "The first", "instructions": "Read, then answer."}),
        ),
        agent("open", "acme", json!({"access": "public"})),
        agent("off", "acme", json!({"enabled": false})),
        agent("empty", "acme", json!({})),
        agent("theirs", "globex", json!({})),
        key("mcp", "alpha", json!({"name": "mcp", "scopes": ["mcp"]})),
        key("registry", "alpha", json!({"name": "registry", "scopes": ["registry"]})),
        key("audit", "alpha", json!({"name": "audit", "scopes": ["audit"]})),
        key("all", "alpha", json!({"name": "all", "scopes": ["mcp", "registry", "audit"]})),
        key("off", "off", json!({"name": "off"})),
        key("empty", "empty", json!({})),
        key("theirs", "theirs", json!({"scopes": ["mcp", "registry"]})),
        key("elsewhere", "alpha", json!({"name": "elsewhere", "networks": ["10.0.0.0/8"]})),
        key("revoked", "alpha", json!({"name": "revoked"})),
        admin("revoke a key", "operator", "DELETE", "/keys/<<revoked-id>>"),
        owner("owner", "acme", json!({"name": "owner"})),
        owner("foreign-owner", "globex", json!({"name": "foreign"})),
        put("manifest of alpha", "alpha", &manifest),
        put("manifest of open", "open", &open),
        put("manifest applied again", "alpha", &manifest),
    ]
}
