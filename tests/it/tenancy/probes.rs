//! Every method of both eras and every administration call, for a given agent, key or tenant.

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::app::encode;
use crate::support::http::{Answer, Client};

/// The slug of an agent that never exists.
pub(super) const UNKNOWN: &str = "never-was";
/// The id of a key that never exists.
pub(super) const UNKNOWN_KEY: &str = "01900000-0000-7000-8000-000000000000";

/// A request whose path has a placeholder, `{}`.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// A credential as a request carries it; `None` for an anonymous caller.
pub(super) type Bearer<'a> = Option<&'a str>;

impl Probe {
    fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: String::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn json(mut self, body: impl ToString) -> Self {
        self.body = body.to_string();
        self.with("content-type", "application/json")
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(super) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).json(body)
    }

    /// The probe with the placeholders of its body replaced.
    pub(super) fn filled(&self, gap: &str) -> Self {
        Self { body: self.body.replace("{}", gap), ..self.clone() }
    }

    /// Sends it with the placeholder replaced.
    pub(super) async fn send(&self, http: &Client, bearer: Bearer<'_>, gap: &str) -> Answer {
        let authorization = bearer.map(|bearer| format!("Bearer {bearer}"));
        let mut headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        http.send(self.method, &self.path.replace("{}", gap), &headers, self.body.clone()).await
    }

    /// Whether existing and missing objects are answered identically, apart from what always differs.
    pub(super) async fn reveals_nothing(
        &self,
        http: &Client,
        bearer: Bearer<'_>,
        existing: &str,
        absent: &str,
    ) -> Result<(), String> {
        let answers = [self.send(http, bearer, existing).await, self.send(http, bearer, absent).await];
        let [foreign, unknown] = answers.map(|answer| answer.visible());
        if foreign == unknown {
            return Ok(());
        }
        Err(format!("{self:?} with {bearer:?}\n{existing}: {foreign:?}\n{absent}: {unknown:?}"))
    }
}

/// A JSON-RPC request.
pub(super) fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn post() -> Probe {
    Probe::new("POST", "/{}/mcp")
}

/// A request of the modern era.
pub(super) fn modern(method: &'static str, mut params: Value) -> Probe {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["uri"].as_str().or(params["name"].as_str()).map(str::to_owned);
    let probe = post().with("mcp-protocol-version", "2026-07-28").with("mcp-method", method);
    let probe = match name {
        Some(name) => probe.with("mcp-name", name),
        None => probe,
    };
    probe.json(message(method, params))
}

/// Every request to an agent's MCP endpoint.
pub(super) fn of_endpoints(uri: &str) -> Vec<Probe> {
    let legacy = |method: &str, params: Value| post().json(message(method, params));
    let read = || message("resources/read", json!({"uri": uri}));
    let initialize = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"},
    });
    let mut probes: Vec<_> =
        ["resources/list", "resources/templates/list", "prompts/list", "tools/list", "ping"]
            .into_iter()
            .flat_map(|method| [legacy(method, json!({})), modern(method, json!({}))])
            .collect();
    probes.extend([
        post().json(read()),
        modern("resources/read", json!({"uri": uri})),
        modern("server/discover", json!({})),
        modern("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": [uri]}})),
        legacy("initialize", initialize),
        legacy("resources/subscribe", json!({"uri": uri})),
        legacy("logging/setLevel", json!({"level": "debug"})),
        legacy("prompts/get", json!({"name": "p"})),
        legacy("tools/call", json!({"name": "t"})),
        legacy("tools/call", json!({"name": "read_resource", "arguments": {"uri": uri}})),
        modern("tools/call", json!({"name": "get_prompt", "arguments": {"name": "p"}})),
        legacy("completion/complete", json!({"ref": {"type": "ref/resource", "uri": uri}})),
        legacy("no/such/method", json!({})),
        legacy("resources/list", json!({"cursor": "AAAA"})),
        post().json(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        post().json(json!([read(), message("ping", json!({}))])),
        post().json(json!([])),
        post().json("{"),
        post().json(json!({"jsonrpc": "2.0", "id": null, "method": "ping"})),
        post().json(read()).with("mcp-session-id", "s"),
        post().json(read()).with("accept", "text/plain"),
        post().json(read()).with("origin", "http://evil.example"),
        post().json(read()).with("origin", "http://localhost:3000"),
        Probe { body: read().to_string(), ..post().with("content-type", "text/plain") },
        // Longer than what is read of a refused request.
        post().json(format!("{}{}", " ".repeat(100 * 1024), read())),
        Probe::new("POST", "/{}/mcp/").json(read()),
        Probe::new("GET", "/{}/mcp").with("accept", "text/event-stream"),
        Probe::new("GET", "/{}/mcp").with("accept", "text/event-stream").with("mcp-session-id", "s"),
        Probe::new("DELETE", "/{}/mcp").with("mcp-session-id", "s"),
        Probe::new("OPTIONS", "/{}/mcp").with("origin", "http://localhost:3000"),
        Probe::new("HEAD", "/{}/mcp"),
        Probe::new("PUT", "/{}/mcp"),
        Probe::new("GET", "/.well-known/oauth-protected-resource/{}/mcp"),
    ]);
    probes
}

const TEMPLATE: &str = "/admin/v1/agents/{}/templates?uriTemplate=t:%7Bv%7D";
const PROMPT: &str = "/admin/v1/agents/{}/prompts/p";

/// Every call about an agent on the administration API. Those that change something are sent with foreign credentials
/// only.
pub(super) fn of_administration(uri: &str) -> Vec<Probe> {
    let resource = |below: &str| format!("/admin/v1/agents/{{}}/resources{below}?uri={}", encode(uri));
    let body = || json!({"name": "n", "contents": [{"text": "written by another tenant"}]});
    let agent = "/admin/v1/agents/{}";
    let messages =
        json!([{"role": "user", "content": {"type": "text", "text": "written by another tenant"}}]);
    let mut probes = vec![
        Probe::new("GET", agent),
        Probe::new("HEAD", agent),
        Probe::new("PUT", agent).json(json!({})),
        Probe::new("PATCH", agent).json(json!({"enabled": false})),
        Probe::new("PATCH", agent).json(json!({"nonsense": 1})),
        Probe::new("GET", "/admin/v1/agents/{}/keys"),
        Probe::new("GET", "/admin/v1/agents/{}/keys?limit=0"),
        Probe::new("GET", "/admin/v1/agents/{}/keys?cursor=AAAA"),
        Probe::new("POST", "/admin/v1/agents/{}/keys").json(json!({"scopes": ["mcp", "registry"]})),
        Probe::new("POST", "/admin/v1/agents/{}/keys").json(json!({"scopes": []})),
        Probe::new("GET", "/admin/v1/agents/{}/resources"),
        Probe::new("GET", "/admin/v1/agents/{}/resources?limit=1"),
        Probe::new("GET", "/admin/v1/agents/{}/resources?cursor=AAAA"),
        Probe::new("GET", "/admin/v1/agents/{}/resources?uri=no%20uri"),
        Probe::new("GET", resource("")),
        Probe::new("GET", resource("/content")),
        Probe::new("PUT", resource("/content")).with("content-type", "no type"),
        Probe { body: "raw".to_owned(), ..Probe::new("PUT", resource("/content")) },
        Probe::new("POST", resource("/touch")),
        Probe::new("PUT", resource("")).json(json!({"name": 7})),
        Probe::new("PUT", resource("")).json("{"),
        Probe::new("PUT", resource("")),
        Probe::new("GET", "/admin/v1/agents/{}/templates"),
        Probe::new("GET", "/admin/v1/agents/{}/templates?limit=0"),
        Probe::new("GET", TEMPLATE),
        Probe::new("PUT", TEMPLATE).json("{"),
        Probe::new("PUT", "/admin/v1/agents/{}/templates?uriTemplate=none").json(json!({})),
        Probe::new("GET", "/admin/v1/agents/{}/prompts"),
        Probe::new("GET", "/admin/v1/agents/{}/prompts?cursor=AAAA"),
        Probe::new("GET", PROMPT),
        Probe::new("PUT", PROMPT).json(json!({"messages": 7})),
        Probe::new("GET", "/admin/v1/agents/{}/manifest"),
        Probe::new("PUT", "/admin/v1/agents/{}/manifest"),
        Probe::new("PUT", "/admin/v1/agents/{}/manifest").json(json!({"apiVersion": "none"})),
        Probe::new("PUT", "/admin/v1/agents/{}/manifest?dryRun=true")
            .json(json!({"apiVersion": "waggle/v1"})),
        Probe::new("GET", "/admin/v1/agents/{}/usage"),
    ];
    // An `If-Match` that matches, one that does not, and an invalid one.
    for tag in [
        None,
        Some("*"),
        Some("\"1\""),
        Some("\"2\", \"3\", \"4\""),
        Some("\"99999\""),
        Some("W/\"1\""),
        Some("1"),
    ] {
        let conditions = tag.map(|tag| ("if-match", tag.to_owned()));
        let calls = [
            Probe::new("GET", agent),
            Probe::new("GET", resource("")),
            Probe::new("PATCH", agent).json(json!({"name": "taken"})),
            Probe::new("PUT", resource("")).json(body()),
            Probe::new("DELETE", resource("")),
            Probe::new("POST", resource("/touch")),
            Probe::new("PUT", TEMPLATE).json(json!({"name": "n", "template": "written by another tenant"})),
            Probe::new("DELETE", TEMPLATE),
            Probe::new("PUT", PROMPT).json(json!({"messages": messages})),
            Probe::new("DELETE", PROMPT),
            Probe::new("PUT", "/admin/v1/agents/{}/manifest").json(json!({"apiVersion": "waggle/v1"})),
            Probe::new("DELETE", agent),
        ];
        for mut probe in calls {
            probe.headers.extend(conditions.clone());
            probes.push(probe);
        }
    }
    probes
}

/// Every call about a key.
pub(super) fn of_keys() -> Vec<Probe> {
    vec![
        Probe::new("DELETE", "/admin/v1/keys/{}"),
        Probe::new("GET", "/admin/v1/keys/{}"),
        Probe::new("POST", "/admin/v1/keys/{}/rotate"),
        Probe::new("POST", "/admin/v1/keys/{}/rotate").json(json!({"graceSeconds": 0})),
        Probe::new("POST", "/admin/v1/keys/{}/rotate").json(json!({"graceSeconds": 99_999_999})),
    ]
}

/// Every call about a tenant; the last placeholder is in a body.
pub(super) fn of_tenants() -> Vec<Probe> {
    vec![
        Probe::new("GET", "/admin/v1/tenants/{}"),
        Probe::new("PATCH", "/admin/v1/tenants/{}").json(json!({"name": "taken"})),
        Probe::new("DELETE", "/admin/v1/tenants/{}"),
        Probe::new("GET", "/admin/v1/tenants/{}/keys"),
        Probe::new("POST", "/admin/v1/tenants/{}/keys").json(json!({})),
        Probe::new("GET", "/admin/v1/agents?tenant={}"),
        Probe::new("GET", "/admin/v1/agents?tenant={}&limit=1"),
    ]
}

/// Checks that an answer is a well-formed refusal.
pub(super) fn refuses(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}
