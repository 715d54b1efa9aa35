//! Administration calls that make changes, and their preconditions, pages and media types. Sent last.

use serde_json::{Value, json};

use super::admin;
use crate::case::{Case, Source};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = tenants();
    cases.extend(agents());
    cases.extend(keys());
    cases.extend(resources());
    cases.extend(preconditions());
    cases.extend(queries());
    cases.extend(media());
    cases.extend(removals());
    cases
}

fn by_operator(name: impl Into<String>, method: &str, path: &str) -> Case {
    admin(name, "operator", method, path)
}

fn post(name: impl Into<String>, path: &str, body: &Value) -> Case {
    by_operator(name, "POST", path).json(body)
}

/// Invalid slugs.
const NO_SLUGS: [&str; 12] =
    ["", "-a", "_a", "A", "a b", "a.b", "a/b", "é", "admin", "metrics", "healthz", "assets"];

fn tenants() -> Vec<Case> {
    let mut cases: Vec<_> =
        NO_SLUGS.iter().map(|id| post(format!("tenant {id:?}"), "/tenants", &json!({"id": id}))).collect();
    let patch = |name: &str, body: Value| by_operator(name, "PATCH", "/tenants/initech").json(&body);
    cases.extend([
        post("a tenant", "/tenants", &json!({"id": "initech", "name": "Initech"})),
        post("a tenant that exists", "/tenants", &json!({"id": "initech"})),
        post("a tenant without an id", "/tenants", &json!({"name": "x"})),
        post("a tenant with a long id", "/tenants", &json!({"id": "x".repeat(64)})),
        by_operator("the tenant", "GET", "/tenants/initech"),
        patch("rename the tenant", json!({"name": "Initech Ltd"})),
        patch("rename it to nothing", json!({"name": null})),
        patch("change nothing", json!({})),
        patch("a key age", json!({"maxKeyAgeDays": 90})),
        patch("a key age of nothing", json!({"maxKeyAgeDays": null})),
        patch("a key age of zero", json!({"maxKeyAgeDays": 0})),
        patch("limits", json!({"limits": {"perSecond": 5, "burst": 10, "callsPerDay": 100}})),
        patch("limits that are negative", json!({"limits": {"perSecond": -5}})),
        patch("unknown limits", json!({"limits": {"perMinute": 5}})),
        by_operator("the tenant after its changes", "GET", "/tenants/initech"),
    ]);
    cases
}

fn agents() -> Vec<Case> {
    let agent = |id: &str| json!({"id": id, "tenant": "initech"});
    let mut cases: Vec<_> =
        NO_SLUGS.iter().map(|id| post(format!("agent {id:?}"), "/agents", &agent(id))).collect();
    let patch =
        |name: &str, body: Value| by_operator(format!("agent: {name}"), "PATCH", "/agents/beta").json(&body);
    cases.extend([
        post("an agent", "/agents", &agent("beta")),
        post("an agent that exists", "/agents", &agent("beta")),
        post("an agent that exists elsewhere", "/agents", &agent("alpha")),
        post("an agent of no tenant", "/agents", &json!({"id": "gamma"})),
        post("an agent by an owner elsewhere", "/agents", &agent("gamma")).bearer("owner"),
        post("an agent of its own by an owner", "/agents", &json!({"id": "delta", "tenant": "acme"}))
            .bearer("owner"),
        by_operator("the agent", "GET", "/agents/beta"),
        patch("name", json!({"name": "Beta"})),
        patch("an empty name", json!({"name": ""})),
        patch("no name", json!({"name": null})),
        patch("title", json!({"title": "B"})),
        patch("no title", json!({"title": null})),
        patch("instructions", json!({"instructions": "Do."})),
        patch("public", json!({"access": "public"})),
        patch("secret", json!({"access": "secret"})),
        patch("disabled", json!({"enabled": false})),
        patch("enabled", json!({"enabled": true})),
        patch("half enabled", json!({"enabled": "half"})),
        patch("another id", json!({"id": "b"})),
        patch("another tenant", json!({"tenant": "acme"})),
        patch("limits", json!({"limits": {"perSecond": 5}})),
        by_operator("the agent after its changes", "GET", "/agents/beta"),
    ]);
    cases
}

fn keys() -> Vec<Case> {
    let new = |name: &str, body: Value| post(format!("key: {name}"), "/agents/beta/keys", &body);
    let path = "/keys/<<beta-id>>";
    vec![
        new("nothing given", json!({}))
            .capture("beta", Source::Member("/key"))
            .capture("beta-id", Source::Member("/id")),
        new("no scopes", json!({"scopes": []})),
        new("unknown scope", json!({"scopes": ["admin"]})),
        new("a scope twice", json!({"scopes": ["mcp", "mcp"]})),
        new("scopes as a text", json!({"scopes": "mcp"})),
        new("expired", json!({"expiresAt": "2020-01-01T00:00:00Z"})),
        new("expiry that is none", json!({"expiresAt": "tomorrow"})),
        new("far expiry", json!({"expiresAt": "2099-01-01T00:00:00Z"})),
        new("networks", json!({"networks": ["127.0.0.0/8", "::1"]})),
        new("networks with host bits", json!({"networks": ["10.0.0.1/8"]})),
        new("networks that are none", json!({"networks": ["local"]})),
        new("limits", json!({"limits": {"perSecond": 3, "burst": 9}})),
        new("a long name", json!({"name": "x".repeat(1_000)})),
        new("a member too many", json!({"key": "bak_x"})),
        by_operator("key: page", "GET", "/agents/beta/keys?limit=2")
            .capture("keys-2", Source::Member("/nextCursor")),
        by_operator("key: next page", "GET", "/agents/beta/keys?limit=2&cursor=<<keys-2>>"),
        by_operator("key: a page elsewhere", "GET", "/agents/alpha/keys?limit=2&cursor=<<keys-2>>"),
        by_operator("key: limits patched", "PATCH", path).json(&json!({"limits": {"perSecond": 1}})),
        by_operator("key: limits removed", "PATCH", path).json(&json!({"limits": null})),
        by_operator("key: nothing patched", "PATCH", path).json(&json!({})),
        by_operator("key: rotated", "POST", "/keys/<<beta-id>>/rotate").json(&json!({"graceSeconds": 60})),
        by_operator("key: rotated too long", "POST", "/keys/<<beta-id>>/rotate")
            .json(&json!({"graceSeconds": 99_999_999})),
        by_operator("key: revoked", "DELETE", path),
        by_operator("key: revoked again", "DELETE", path),
        by_operator("key: patched when revoked", "PATCH", path).json(&json!({"limits": null})),
        by_operator("key: rotated when revoked", "POST", "/keys/<<beta-id>>/rotate"),
        post("key: of a tenant", "/tenants/initech/keys", &json!({"name": "own"}))
            .capture("initech", Source::Member("/key")),
        post("key: of a tenant, narrow", "/tenants/initech/keys", &json!({"scopes": ["registry"]})),
        by_operator("key: a tenant's", "GET", "/tenants/initech/keys"),
        admin("key: by the tenant's own", "initech", "POST", "/agents/beta/keys")
            .json(&json!({"name": "by owner"})),
    ]
}

fn resources() -> Vec<Case> {
    let at = |name: &str, method: &str, rest: &str| {
        by_operator(format!("resource: {name}"), method, &format!("/agents/beta/{rest}"))
    };
    let (uri, content) = ("resources?uri=a%3A%2F%2Fb", "resources/content?uri=a%3A%2F%2Fb");
    let body = json!({"name": "b", "mimeType": "text/plain", "contents": [{"text": "one"}]});
    vec![
        at("created", "PUT", uri).json(&body),
        at("the same again", "PUT", uri).json(&body),
        at("changed", "PUT", uri).json(&json!({"name": "b", "contents": [{"text": "two"}]})),
        at("read", "GET", uri),
        at("its bytes", "GET", content),
        at("other bytes", "PUT", content).header("content-type", "text/markdown").raw("# three"),
        at("bytes without a type", "PUT", content).raw("four"),
        at("bytes of JSON", "PUT", content).header("content-type", "application/json").raw("{}"),
        at("bytes that are no text", "PUT", content)
            .header("content-type", "text/plain")
            .raw(b"\xff\xfe".to_vec()),
        at("bytes of another charset", "PUT", content)
            .header("content-type", "text/plain; charset=iso-8859-1")
            .raw(b"\xe9".to_vec()),
        at("bytes of a new one", "PUT", "resources/content?uri=a%3A%2F%2Fnew")
            .header("content-type", "image/png")
            .raw("x"),
        at("no bytes", "PUT", "resources/content?uri=a%3A%2F%2Fempty").header("content-type", "text/plain"),
        at("touched", "POST", "resources/touch?uri=a%3A%2F%2Fb"),
        at("several contents", "PUT", "resources?uri=a%3A%2F%2Fmany")
            .json(&json!({"name": "many", "contents": [{"text": "1"}, {"text": "2", "uri": "a://many/2"}]})),
        at("bytes of several", "GET", "resources/content?uri=a%3A%2F%2Fmany"),
        at("bytes for several", "PUT", "resources/content?uri=a%3A%2F%2Fmany")
            .header("content-type", "text/plain")
            .raw("x"),
        at("listed", "GET", "resources"),
        at("template created", "PUT", "templates?uriTemplate=t%3A%2F%2F%7Bx%7D")
            .json(&json!({"name": "t", "template": "{{ x }}"})),
        at("template overlapping", "PUT", "templates?uriTemplate=t%3A%2F%2F%7By%7D")
            .json(&json!({"name": "t", "template": "{{ y }}"})),
        at("template read", "GET", "templates?uriTemplate=t%3A%2F%2F%7Bx%7D"),
        at("templates listed", "GET", "templates"),
        at("prompt created", "PUT", "prompts/p")
            .json(&json!({"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]})),
        at("prompt read", "GET", "prompts/p"),
        at("prompts listed", "GET", "prompts"),
        at("exported", "GET", "manifest"),
    ]
}

fn preconditions() -> Vec<Case> {
    let tags = [
        "\"0\"",
        "\"999\"",
        "*",
        "0",
        "W/\"1\"",
        "\"0\", \"1\"",
        ", \"0\",",
        "\"0\",,\"2\"",
        "\"",
        "",
        "\"x\"",
        "\"-1\"",
    ];
    let body = json!({"name": "never", "contents": [], "extra": 1});
    let mut cases = Vec::new();
    for tag in tags {
        for header in ["if-match", "if-none-match"] {
            for (path, method) in [
                ("resources?uri=a%3A%2F%2Fb", "PUT"),
                ("resources?uri=a%3A%2F%2Fnone", "DELETE"),
                ("resources?uri=a%3A%2F%2Fb", "GET"),
            ] {
                let case = by_operator(
                    format!("{method} {path}, {header} {tag:?}"),
                    method,
                    &format!("/agents/beta/{path}"),
                );
                let case = case.header(header, tag);
                cases.push(if method == "PUT" { case.json(&body) } else { case });
            }
            let patch =
                by_operator(format!("agent, {header} {tag:?}"), "PATCH", "/agents/none").header(header, tag);
            cases.push(patch.json(&json!({"name": "x"})));
        }
    }
    cases
}

fn queries() -> Vec<Case> {
    let mut cases = Vec::new();
    for limit in ["1", "500", "501", "0", "-1", "abc", "", "1.5", "99999999999999999999"] {
        for path in ["/agents/beta/resources", "/agents/beta/keys", "/agents/beta/prompts"] {
            cases.push(by_operator(
                format!("{path}, limit {limit:?}"),
                "GET",
                &format!("{path}?limit={limit}"),
            ));
        }
    }
    for cursor in ["abc", "", "0", "AAAA", "%00"] {
        for path in ["/agents/beta/resources", "/agents/beta/templates", "/tenants", "/agents", "/audit"] {
            cases.push(by_operator(
                format!("{path}, cursor {cursor:?}"),
                "GET",
                &format!("{path}?cursor={cursor}"),
            ));
        }
    }
    for path in ["/agents/beta/resources", "/tenants/acme", "/agents/beta", "/audit"] {
        cases.push(by_operator(format!("{path}, an unknown parameter"), "GET", &format!("{path}?unknown=1")));
    }
    for query in [
        "outcome=bogus",
        "outcome=ok&method=none",
        "from=yesterday",
        "from=2020-01-01T00:00:00Z&to=2019-01-01T00:00:00Z",
        "agent=none&to=2020-01-01T00:00:00Z",
        "agent=UPPER&to=2020-01-01T00:00:00Z",
        "tenant=none",
        "key=none",
        "key=00000000-0000-0000-0000-000000000000",
        "method=resources%2Fread&to=2020-01-01T00:00:00Z",
        "limit=501",
    ] {
        for caller in ["operator", "owner"] {
            cases.push(admin(
                format!("audit?{query} by {caller}"),
                caller,
                "GET",
                &format!("/audit?{query}"),
            ));
        }
    }
    for accept in ["application/x-ndjson", "text/csv", "text/html", "*/*"] {
        let case = by_operator(format!("audit as {accept}"), "GET", "/audit?to=2020-01-01T00:00:00Z");
        cases.push(case.header("accept", accept));
    }
    for query in [
        "bucket=minute",
        "bucket=day",
        "from=x",
        "from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z&bucket=hour",
        "from=2020-01-02T00:00:00Z&to=2020-01-01T00:00:00Z",
    ] {
        let query = if query == "bucket=day" { "bucket=day&to=2020-01-01T00:00:00Z" } else { query };
        cases.push(by_operator(format!("usage?{query}"), "GET", &format!("/agents/beta/usage?{query}")));
    }
    cases
}

fn media() -> Vec<Case> {
    let mut cases = Vec::new();
    for media in [
        "application/json",
        "application/json ; charset=utf-8",
        "application/json;charset=utf-8",
        "text/plain",
        "application/xml",
        "",
    ] {
        for (method, path) in [
            ("POST", "/tenants"),
            ("PATCH", "/agents/beta"),
            ("PUT", "/agents/beta/prompts/none"),
            ("POST", "/keys/none/rotate"),
        ] {
            let case = by_operator(format!("{method} {path} as {media:?}"), method, path)
                .header("content-type", media);
            cases.push(case.raw("{\"nonsense\":1}"));
        }
    }
    for body in
        ["", "{", "[]", "null", "\"x\"", "{\"id\":\"a\",\"id\":\"b\"}", "{\"id\":\"\\ud800\"}", "{\"id\":1}"]
    {
        for (method, path) in [
            ("POST", "/tenants"),
            ("POST", "/agents"),
            ("PATCH", "/agents/beta"),
            ("POST", "/agents/beta/keys"),
            ("PUT", "/agents/beta/manifest"),
        ] {
            let case = by_operator(format!("{method} {path} with {body}"), method, path);
            // A body that could be read as a request for a key with default settings would create one.
            if !(path.ends_with("keys") && body.is_empty()) {
                cases.push(case.header("content-type", "application/json").raw(body));
            }
        }
    }
    cases
}

/// Deletes the created objects, and reads them again.
fn removals() -> Vec<Case> {
    let at = |name: &str, method: &str, path: &str| by_operator(format!("removal: {name}"), method, path);
    vec![
        at("a resource", "DELETE", "/agents/beta/resources?uri=a%3A%2F%2Fb"),
        at("it is gone", "GET", "/agents/beta/resources?uri=a%3A%2F%2Fb"),
        at("a template", "DELETE", "/agents/beta/templates?uriTemplate=t%3A%2F%2F%7Bx%7D"),
        at("a prompt", "DELETE", "/agents/beta/prompts/p"),
        at("an emptied agent", "GET", "/agents/beta/manifest"),
        at("an agent by a foreign owner", "DELETE", "/agents/beta").bearer("owner"),
        at("an agent", "DELETE", "/agents/beta"),
        at("an agent that is gone", "GET", "/agents/beta"),
        at("its slug by another tenant", "POST", "/agents").json(&json!({"id": "beta", "tenant": "acme"})),
        at("its slug by its tenant", "POST", "/agents").json(&json!({"id": "beta", "tenant": "initech"})),
        at("a tenant", "DELETE", "/tenants/initech"),
        at("a tenant that is gone", "GET", "/tenants/initech"),
        at("its owner's key", "GET", "/tenants/initech").bearer("initech"),
    ]
}
