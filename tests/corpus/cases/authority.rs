//! Every administration call with every kind of credential, in cases that fail or change nothing.

use serde_json::{Value, json};

use crate::case::Case;

const CALLERS: [&str; 10] = [
    "operator",
    "owner",
    "foreign-owner",
    "mcp",
    "registry",
    "audit",
    "all",
    "theirs",
    "revoked",
    "elsewhere",
];

/// Calls that are made with every credential: their bodies are invalid, or their subjects do not exist.
fn calls() -> Vec<(&'static str, &'static str, Option<Value>)> {
    let wrong = || Some(json!({"nonsense": true}));
    vec![
        ("GET", "/tenants?limit=0", None),
        ("POST", "/tenants", wrong()),
        ("GET", "/tenants/globex", None),
        ("GET", "/tenants/none", None),
        ("PATCH", "/tenants/acme", wrong()),
        ("PATCH", "/tenants/none", Some(json!({"name": "x"}))),
        ("DELETE", "/tenants/none", None),
        ("GET", "/tenants/acme/keys?limit=0", None),
        ("GET", "/tenants/none/keys", None),
        ("POST", "/tenants/acme/keys", wrong()),
        ("POST", "/tenants/none/keys", Some(json!({}))),
        ("GET", "/agents?limit=0", None),
        ("GET", "/agents?tenant=none", None),
        ("GET", "/agents?tenant=globex", None),
        ("POST", "/agents", wrong()),
        ("POST", "/agents", Some(json!({"id": "new-one", "tenant": "none"}))),
        ("GET", "/agents/theirs", None),
        ("PATCH", "/agents/alpha", wrong()),
        ("PATCH", "/agents/none", Some(json!({"name": "x"}))),
        ("DELETE", "/agents/none", None),
        ("POST", "/agents/alpha/explain", wrong()),
        ("GET", "/agents/alpha/keys?limit=0", None),
        ("POST", "/agents/alpha/keys", wrong()),
        ("POST", "/agents/none/keys", Some(json!({}))),
        ("GET", "/agents/alpha/manifest", None),
        ("GET", "/agents/theirs/manifest", None),
        ("PUT", "/agents/alpha/manifest?dryRun=true", wrong()),
        ("GET", "/agents/alpha/prompts", None),
        ("GET", "/agents/alpha/prompts/simple", None),
        ("GET", "/agents/alpha/prompts/none", None),
        ("PUT", "/agents/alpha/prompts/simple", wrong()),
        ("DELETE", "/agents/alpha/prompts/none", None),
        ("GET", "/agents/alpha/resources?limit=3", None),
        ("GET", "/agents/alpha/resources?uri=test%3A%2F%2Fplain", None),
        ("GET", "/agents/alpha/resources?uri=test%3A%2F%2Fnone", None),
        ("PUT", "/agents/alpha/resources?uri=test%3A%2F%2Fplain", wrong()),
        ("DELETE", "/agents/alpha/resources?uri=test%3A%2F%2Fnone", None),
        ("GET", "/agents/alpha/resources/content?uri=test%3A%2F%2Fplain", None),
        ("GET", "/agents/alpha/resources/content?uri=test%3A%2F%2Fmany", None),
        ("PUT", "/agents/alpha/resources/content", None),
        ("POST", "/agents/alpha/resources/touch?uri=test%3A%2F%2Fnone", None),
        ("GET", "/agents/alpha/templates", None),
        ("GET", "/agents/alpha/templates?uriTemplate=weather%3A%2F%2F%7Bcity%7D", None),
        ("PUT", "/agents/alpha/templates?uriTemplate=weather%3A%2F%2F%7Bcity%7D", wrong()),
        ("DELETE", "/agents/alpha/templates?uriTemplate=none%3A%2F%2F%7Bx%7D", None),
        ("GET", "/agents/alpha/usage?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z&bucket=day", None),
        ("GET", "/agents/theirs/usage?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z", None),
        ("GET", "/audit?limit=0", None),
        ("GET", "/audit?agent=alpha&to=2020-01-01T00:00:00Z", None),
        ("GET", "/audit?agent=theirs&to=2020-01-01T00:00:00Z", None),
        ("GET", "/audit?tenant=globex&to=2020-01-01T00:00:00Z", None),
        ("PATCH", "/keys/<<mcp-id>>", wrong()),
        ("PATCH", "/keys/00000000-0000-0000-0000-000000000000", Some(json!({"limits": null}))),
        ("POST", "/keys/<<mcp-id>>/rotate", wrong()),
        ("POST", "/keys/00000000-0000-0000-0000-000000000000/rotate", None),
        ("DELETE", "/keys/00000000-0000-0000-0000-000000000000", None),
        ("DELETE", "/keys/none", None),
        ("GET", "/keys/<<mcp-id>>", None),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (method, path, body) in calls() {
        for caller in CALLERS {
            let case = super::admin(
                format!(
                    "{method} {path} {} by {caller}",
                    body.as_ref().map(Value::to_string).unwrap_or_default()
                ),
                caller,
                method,
                path,
            );
            cases.push(match &body {
                Some(body) => case.json(body),
                None => case,
            });
        }
    }
    cases
}
