//! Invalid definitions, member by member.

use serde_json::{Value, json};

use super::admin;
use crate::case::Case;

/// Values that are invalid for most members.
fn odd() -> Vec<(&'static str, Value)> {
    vec![
        ("null", Value::Null),
        ("number", json!(7)),
        ("true", json!(true)),
        ("empty text", json!("")),
        ("long text", json!("x".repeat(5_000))),
        ("NUL", json!("a\u{0}b")),
        ("list", json!([])),
        ("object", json!({})),
        ("list of numbers", json!([1, 2])),
    ]
}

fn put(kind: &str, what: String, path: &str, body: &Value) -> Case {
    admin(format!("{kind}: {what}"), "registry", "PUT", &format!("/agents/alpha/{path}")).json(body)
}

/// The definition with each member in turn set to each invalid value, in a manifest that is applied as a dry run.
fn each_member(kind: &'static str, list: &str, whole: &Value, members: &[&str]) -> Vec<Case> {
    let mut cases = Vec::new();
    for member in members {
        for (what, value) in odd() {
            let mut definition = whole.clone();
            definition[*member] = value;
            let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", list: [definition]});
            cases.push(put(kind, format!("{member} is {what}"), "manifest?dryRun=true", &manifest));
        }
        let mut definition = whole.clone();
        definition.as_object_mut().unwrap().remove(*member);
        let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", list: [definition]});
        cases.push(put(kind, format!("no {member}"), "manifest?dryRun=true", &manifest));
    }
    cases
}

pub(crate) fn cases() -> Vec<Case> {
    let resource = json!({"uri": "test://new", "name": "new", "title": "New", "description": "d", "mimeType": "text/plain",
        "annotations": {"priority": 1}, "icons": [], "_meta": {"example.com/a": 1}, "contents": [{"text": "x"}]});
    let template = json!({"uriTemplate": "new://{id}", "name": "new", "title": "New", "description": "d",
        "mimeType": "text/plain", "template": "{{ id }}", "completions": {"id": ["1"]}});
    let prompt = json!({"name": "new", "title": "New", "description": "d", "arguments": [{"name": "a"}],
        "messages": [{"role": "user", "content": {"type": "text", "text": "{{ a }}"}}]});
    let mut cases = each_member(
        "resource",
        "resources",
        &resource,
        &["uri", "name", "title", "description", "mimeType", "annotations", "icons", "_meta", "contents"],
    );
    cases.extend(each_member(
        "template",
        "templates",
        &template,
        &["uriTemplate", "name", "title", "description", "mimeType", "template", "completions"],
    ));
    cases.extend(each_member(
        "prompt",
        "prompts",
        &prompt,
        &["name", "title", "description", "arguments", "messages"],
    ));
    cases.extend(contents());
    cases.extend(templates());
    cases.extend(messages());
    cases.extend(manifests());
    cases
}

fn contents() -> Vec<Case> {
    let icons = |src: &str| json!({"icons": [{"src": src}]});
    let members = [
        ("text and blob", json!({"contents": [{"text": "a", "blob": "YQ=="}]})),
        ("neither", json!({"contents": [{}]})),
        ("no base64", json!({"contents": [{"blob": "%%%"}]})),
        ("no base64 later", json!({"contents": [{"text": "a"}, {"blob": "YWJj#"}]})),
        ("base64 without padding", json!({"contents": [{"blob": "YQ"}]})),
        ("a content that is a text", json!({"contents": ["a"]})),
        ("a content with an unknown member", json!({"contents": [{"text": "a", "size": 1}]})),
        ("a content whose uri is none", json!({"contents": [{"text": "a", "uri": "none"}]})),
        ("a content whose type is none", json!({"contents": [{"text": "a", "mimeType": "none"}]})),
        ("a member too many", json!({"contents": [], "size": 3})),
        ("a script as an icon", icons("javascript:alert(1)")),
        ("a relative icon", icons("icon.png")),
        ("an icon from a file", icons("file:///etc/passwd")),
        ("a priority over one", json!({"annotations": {"priority": 1.5}})),
        ("an audience of an unknown role", json!({"annotations": {"audience": ["nobody"]}})),
        ("a time that is none", json!({"annotations": {"lastModified": "yesterday"}})),
        ("an unknown annotation", json!({"annotations": {"mood": "good"}})),
        ("a key of _meta that is none", json!({"_meta": {"a b/": 1}})),
        ("a reserved key of _meta", json!({"_meta": {"io.modelcontextprotocol/x": 1}})),
    ];
    let mut cases = Vec::new();
    for (what, members) in members {
        let mut body = json!({"name": "refused", "contents": []});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", "resources": [body.clone()]});
        let mut within = manifest;
        within["resources"][0]["uri"] = json!("test://new");
        cases.push(put("contents", what.to_owned(), "manifest?dryRun=true", &within));
    }
    for uri in
        ["", "none", "test%3A%2F%2F%25zz", "test%3A%2F%2Fa%20b", "%2F%2Fhost", "test%3A%2F%2F%E9%87%8F"]
    {
        cases.push(put(
            "contents",
            format!("at the uri {uri:?}"),
            &format!("resources?uri={uri}"),
            &json!({"name": "n"}),
        ));
    }
    cases
}

fn templates() -> Vec<Case> {
    let uris = [
        "plain",
        "{x}",
        "a://{",
        "a://}",
        "a://{}",
        "a://{x}{y}",
        "a://{x,x}",
        "a://{x*}",
        "a://{x:3}",
        "a://{/x}",
        "a://{.x}",
        "a://{;x}",
        "a://{&x}",
        "a://{=x}",
        "a://{x-y}",
        "a://{x y}",
        "a://{%41}",
        "a://{主题}",
        "weather://{town}",
        "weather://{city}",
        "a://{+x}{+y}",
        "a://{x}-{y}",
    ];
    let bodies = [
        "{{ id",
        "{% if id %}",
        "{% endif %}",
        "{{ other }}",
        "{{ id | unknown }}",
        "{{ id.x }}",
        "{{ id[0] }}",
        "{{ id() }}",
        "{{ 7 * 7 }}",
        "{% set x = 1 %}",
        "{% include 'x' %}",
        "{% for x in id %}{% endfor %}",
        "{% for x in ['a'] %}{{ x }}{% endfor %}",
        "{% macro m() %}{% endmacro %}",
        "{{ id ~ id }}",
        "{# comment #}",
        "{% raw %}{{ id }}{% endraw %}",
        "{{ 'text' }}",
        "{{ id == 'x' and not id }}",
        "{{ id | default(other) }}",
        "{{ self }}",
    ];
    let dry = |what: String, template: Value| {
        let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", "templates": [template]});
        put("template", what, "manifest?dryRun=true", &manifest)
    };
    let mut cases: Vec<_> = uris
        .into_iter()
        .map(|uri| dry(format!("at {uri}"), json!({"uriTemplate": uri, "name": "n", "template": "x"})))
        .collect();
    cases.extend(bodies.into_iter().map(|body| {
        dry(format!("body {body}"), json!({"uriTemplate": "new://{id}", "name": "n", "template": body}))
    }));
    for completions in
        [json!({"other": ["a"]}), json!({"id": "a"}), json!({"id": [1]}), json!({"id": ["a", "a"]})]
    {
        let template =
            json!({"uriTemplate": "new://{id}", "name": "n", "template": "x", "completions": completions});
        cases.push(dry(format!("completions {completions}"), template));
    }
    cases
}

fn messages() -> Vec<Case> {
    let contents = [
        json!({"type": "text"}),
        json!({"type": "text", "text": 1}),
        json!({"type": "text", "text": "{{ other }}"}),
        json!({"type": "text", "text": "x", "extra": 1}),
        json!({"type": "image", "data": "YQ=="}),
        json!({"type": "image", "data": "%", "mimeType": "image/png"}),
        json!({"type": "audio", "data": "YQ==", "mimeType": "sound"}),
        json!({"type": "resource_link", "uri": "none", "name": "n"}),
        json!({"type": "resource_link", "uri": "test://a"}),
        json!({"type": "resource_link", "uri": "test://a", "name": ""}),
        json!({"type": "resource", "resource": {}}),
        json!({"type": "resource", "resource": {"uri": "none"}}),
        json!({"type": "resource", "resource": {"uri": "test://a", "text": "a", "blob": "YQ=="}}),
        json!({"type": "resource", "resource": {"uri": "test://{{ a }}"}}),
        json!({"type": "resource", "resource": {"uri": "test://a", "_meta": {"example.com/a": 1}}}),
        json!({"type": "video", "data": "YQ=="}),
        json!("text"),
        json!([]),
    ];
    let arguments = [
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"name": ""}]),
        json!([{"name": "x-y"}]),
        json!([{"name": "if"}]),
        json!([{"name": "主题"}]),
        json!([{"name": "a b"}]),
        json!([{}]),
        json!(["a"]),
        json!([{"name": "a", "required": "yes"}]),
        json!([{"name": "a", "completions": "x"}]),
        json!([{"name": "a", "completions": ["x", "x"]}]),
        json!([{"name": "a", "extra": 1}]),
    ];
    let dry = |what: String, prompt: Value| {
        let manifest = json!({"apiVersion": "waggle/v1", "agent": "alpha", "prompts": [prompt]});
        put("prompt", what, "manifest?dryRun=true", &manifest)
    };
    let mut cases: Vec<_> = contents
        .into_iter()
        .map(|content| {
            let messages = json!([{"role": "user", "content": content}]);
            dry(
                format!("content {content}"),
                json!({"name": "new", "arguments": [{"name": "a"}], "messages": messages}),
            )
        })
        .collect();
    cases.extend(arguments.into_iter().map(|arguments| {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "x"}}]);
        dry(
            format!("arguments {arguments}"),
            json!({"name": "new", "arguments": arguments, "messages": messages}),
        )
    }));
    for role in [json!("system"), json!(""), Value::Null] {
        let messages = json!([{"role": role, "content": {"type": "text", "text": "x"}}]);
        cases.push(dry(format!("role {role}"), json!({"name": "new", "messages": messages})));
    }
    for name in ["a/b", "..", "a b", "名", "x".repeat(300).as_str()] {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "x"}}]);
        cases.push(dry(format!("name {name:.20}"), json!({"name": name, "messages": messages})));
    }
    cases
}

fn manifests() -> Vec<Case> {
    let bodies = [
        ("nothing", json!({})),
        ("a list", json!([])),
        ("another version", json!({"apiVersion": "waggle/v2", "agent": "alpha"})),
        ("another agent", json!({"apiVersion": "waggle/v1", "agent": "open"})),
        ("an unknown member", json!({"apiVersion": "waggle/v1", "agent": "alpha", "extra": []})),
        ("resources are an object", json!({"apiVersion": "waggle/v1", "agent": "alpha", "resources": {}})),
        (
            "a resource twice",
            json!({"apiVersion": "waggle/v1", "agent": "alpha", "resources":
            [{"uri": "a://b", "name": "1", "contents": []}, {"uri": "a://b", "name": "2", "contents": []}]}),
        ),
        (
            "a prompt twice",
            json!({"apiVersion": "waggle/v1", "agent": "alpha", "prompts":
            [{"name": "p", "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]},
             {"name": "p", "messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]}]}),
        ),
        (
            "empty lists",
            json!({"apiVersion": "waggle/v1", "agent": "alpha", "resources": [], "templates": [], "prompts": []}),
        ),
        ("nothing but the agent", json!({"apiVersion": "waggle/v1", "agent": "alpha"})),
    ];
    let mut cases = Vec::new();
    for (what, body) in bodies {
        cases.push(put("manifest", what.to_owned(), "manifest?dryRun=true", &body));
        let conditional = put("manifest", format!("{what}, If-Match 0"), "manifest?dryRun=true", &body);
        cases.push(conditional.header("if-match", "\"0\""));
    }
    for parameter in ["dryRun=yes", "dryRun=", "dryRun=TRUE", "dry=true", "dryRun=true&dryRun=true"] {
        let body = json!({"apiVersion": "waggle/v2", "agent": "alpha"});
        cases.push(put("manifest", format!("?{parameter}"), &format!("manifest?{parameter}"), &body));
    }
    cases
}
