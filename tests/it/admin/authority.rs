//! Authorization: every call with every kind of credential.

use std::fmt::Write;

use serde_json::{Value, json};
use time::Duration;
use time::macros::datetime;

use super::{owner, send};
use crate::support::app::{Builder, Replica};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;
use crate::support::http::Answer;

/// `U` is 401 unauthenticated, `F` 403 forbidden, `S` 403 `insufficient_scope`, `-` 404 `not_found`.
const EXPECTED: &str = "
                               absent wrong operator owner other mcp registry sibling revoked expired
GET /tenants                        U     U      200     F     F   F        F       F       U       U
POST /tenants                       U     U      201     F     F   F        F       F       U       U
GET /tenants/acme                   U     U      200   200     -   F        F       F       U       U
PATCH /tenants/acme                 U     U      200     F     F   F        F       F       U       U
DELETE /tenants/{deleted}           U     U      204     F     F   F        F       F       U       U
GET /tenants/acme/keys              U     U      200     F     F   F        F       F       U       U
POST /tenants/acme/keys             U     U      201     F     F   F        F       F       U       U
GET /agents                         U     U      200   200   200   F        F       F       U       U
GET /agents?tenant=acme             U     U      200   200     -   F        F       F       U       U
POST /agents                        U     U      201   201     -   F        F       F       U       U
GET /agents/a                       U     U      200   200     -   F        F       F       U       U
PATCH /agents/a                     U     U      200   200     -   F        F       F       U       U
DELETE /agents/{deleted}            U     U      204   204     -   F        F       F       U       U
GET /agents/a/keys                  U     U      200   200     -   F        F       F       U       U
POST /agents/a/keys                 U     U      201   201     -   F        F       F       U       U
DELETE /keys/{key}                  U     U      204   204     -   F        F       F       U       U
POST /keys/{key}/rotate             U     U      201   201     -   F        F       F       U       U
DELETE /keys/{owner}                U     U      204     -     -   F        F       F       U       U
POST /keys/{owner}/rotate           U     U      201     -     -   F        F       F       U       U
GET resources                       U     U      200   200     -   S      200       -       U       U
GET resource                        U     U      200   200     -   S      200       -       U       U
PUT resource                        U     U      200   200     -   S      200       -       U       U
GET content                         U     U      200   200     -   S      200       -       U       U
PUT content                         U     U      200   200     -   S      200       -       U       U
POST touch                          U     U      202   202     -   S      202       -       U       U
DELETE resource                     U     U      204   204     -   S      204       -       U       U
GET templates                       U     U      200   200     -   S      200       -       U       U
GET template                        U     U      200   200     -   S      200       -       U       U
PUT template                        U     U      200   200     -   S      200       -       U       U
DELETE template                     U     U      204   204     -   S      204       -       U       U
GET prompts                         U     U      200   200     -   S      200       -       U       U
GET prompt                          U     U      200   200     -   S      200       -       U       U
PUT prompt                          U     U      200   200     -   S      200       -       U       U
DELETE prompt                       U     U      204   204     -   S      204       -       U       U
GET manifest                        U     U      200   200     -   S      200       -       U       U
PUT manifest                        U     U      200   200     -   S      200       -       U       U
GET /nowhere                        -     -        -     -     -   -        -       -       -       -
";

/// A caller and its authorization header, if any.
struct Caller {
    name: &'static str,
    header: Option<(&'static str, String)>,
}

/// A gateway with the objects of all calls; each caller has its own.
struct Fixture {
    replica: Replica,
    callers: Vec<Caller>,
}

impl Fixture {
    async fn new() -> Self {
        let database = database().await;
        let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
        let replica = Builder::new(&database).clock(clock.clone()).start().await;
        for tenant in ["acme", "bee"] {
            replica.tenant(tenant).await;
        }
        for agent in ["a", "b"] {
            replica.agent("acme", agent).await;
        }
        let (revoked_id, revoked) = replica.key("a", &["mcp", "registry"]).await;
        assert_eq!(replica.admin("DELETE", &format!("/keys/{revoked_id}"), None).await.status, 204);
        let expiring = json!({"scopes": ["registry"], "expiresAt": "2026-11-21T12:00:01Z"});
        let expired = replica.admin("POST", "/agents/a/keys", Some(expiring)).await.json();
        let mut wrong = revoked.clone().into_bytes();
        wrong[10] = if wrong[10] == b'a' { b'b' } else { b'a' };
        let bearer = |key: &str| Some(("authorization", format!("Bearer {key}")));
        let agent = |key: &str| Some(("x-agent-api-key", key.to_owned()));
        let header = [
            ("absent", None),
            ("wrong", agent(std::str::from_utf8(&wrong).unwrap())),
            ("operator", bearer(&replica.operator)),
            ("owner", bearer(&owner(&replica, "acme").await)),
            ("other", bearer(&owner(&replica, "bee").await)),
            ("mcp", agent(&replica.key("a", &["mcp"]).await.1)),
            ("registry", bearer(&replica.key("a", &["registry"]).await.1)),
            ("sibling", agent(&replica.key("b", &["mcp", "registry", "audit"]).await.1)),
            ("revoked", agent(&revoked)),
            ("expired", bearer(expired["key"].as_str().unwrap())),
        ];
        clock.advance(Duration::seconds(1));
        let callers = header.map(|(name, header)| Caller { name, header });
        Self { replica, callers: callers.into() }
    }

    /// Creates what the call of one caller may delete, and calls; returns the answer as a cell of the table.
    async fn cell(&self, row: &str, caller: &Caller) -> String {
        let name = caller.name;
        let deleted = match row {
            "DELETE /tenants/{deleted}" => {
                self.replica.tenant(&format!("deleted-{name}")).await;
                String::new()
            }
            "DELETE /agents/{deleted}" => {
                self.replica.agent("acme", &format!("deleted-{name}")).await;
                String::new()
            }
            row if row.contains("{key}") => {
                let agent = format!("{}-{name}", if row.starts_with("POST") { "rotated" } else { "revoked" });
                self.replica.agent("acme", &agent).await;
                self.replica.key(&agent, &["mcp"]).await.0
            }
            row if row.contains("{owner}") => self.owner_key(name, row.starts_with("POST")).await,
            row if row.ends_with("resource") || row.ends_with("content") || row.ends_with("touch") => {
                self.replica.put("a", &format!("x:{name}"), "").await;
                String::new()
            }
            row if row.ends_with("template") || row.ends_with("prompt") => {
                let kind = row.split_once(' ').unwrap().1;
                let put = format!("PUT {kind}");
                let path = Self::path(kind, name);
                assert!(self.replica.admin("PUT", &path, body(&put, name)).await.status.is_success());
                String::new()
            }
            _ => String::new(),
        };
        let (method, path) = row.split_once(' ').unwrap();
        let path = match path {
            path if path.starts_with('/') => {
                path.replace("{deleted}", &format!("deleted-{name}")).replace("{key}", &deleted)
            }
            path => Self::path(path, name),
        };
        let path = path.replace("{owner}", &deleted);
        cell(&self.send(caller, method, &path, body(row, name)).await)
    }

    /// The path of an object of the agent `a`: the caller's own, or the list.
    fn path(what: &str, name: &str) -> String {
        match what {
            "resource" => format!("/agents/a/resources?uri=x:{name}"),
            "content" | "touch" => format!("/agents/a/resources/{what}?uri=x:{name}"),
            "template" => format!("/agents/a/templates?uriTemplate={name}:%7Bv%7D"),
            "prompt" => format!("/agents/a/prompts/{name}"),
            all => format!("/agents/a/{all}"),
        }
    }

    /// An owner key of a tenant of its own: a tenant has at most ten.
    async fn owner_key(&self, name: &str, rotated: bool) -> String {
        let tenant = format!("{}-{name}", if rotated { "rotated" } else { "revoked" });
        self.replica.tenant(&tenant).await;
        let made = self.replica.admin("POST", &format!("/tenants/{tenant}/keys"), Some(json!({}))).await;
        made.json()["id"].as_str().unwrap().to_owned()
    }

    async fn send(&self, caller: &Caller, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut headers = Vec::new();
        if let Some((name, value)) = &caller.header {
            headers.push((*name, value.as_str()));
        }
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.replica.http.send(method, &format!("/admin/v1{path}"), &headers, body).await
    }
}

fn body(row: &str, name: &str) -> Option<Value> {
    let resource = json!({"name": "n", "contents": [{"text": ""}]});
    match row {
        "POST /tenants" => Some(json!({"id": format!("new-{name}")})),
        "POST /agents" => Some(json!({"id": format!("new-{name}"), "tenant": "acme"})),
        "PUT resource" => Some(resource),
        "PUT template" => Some(json!({"name": "n", "template": ""})),
        "PUT prompt" => {
            Some(json!({"messages": [{"role": "user", "content": {"type": "text", "text": ""}}]}))
        }
        "PUT manifest" => Some(json!({"apiVersion": "waggle/v1"})),
        row if row.starts_with("GET") || row.starts_with("DELETE") || row.ends_with("touch") => None,
        _ => Some(json!({})),
    }
}

fn cell(answer: &Answer) -> String {
    let code = serde_json::from_slice::<Value>(&answer.body).ok().map(|body| body["code"].clone());
    let code = code.as_ref().and_then(Value::as_str);
    match (answer.status.as_u16(), code) {
        (401, Some("unauthenticated")) => "U".to_owned(),
        (403, Some("forbidden")) => "F".to_owned(),
        (403, Some("insufficient_scope")) => "S".to_owned(),
        (404, Some("not_found")) => "-".to_owned(),
        (status, None) => status.to_string(),
        (status, Some(code)) => format!("{status}:{code}"),
    }
}

#[tokio::test]
async fn each_credential_is_authorized_as_the_contract_says() {
    let fixture = Fixture::new().await;
    let mut table = "\n".to_owned();
    write!(table, "{:30}", "").unwrap();
    for caller in &fixture.callers {
        write!(table, " {}", caller.name).unwrap();
    }
    for row in EXPECTED.lines().skip(2) {
        let row = row[..30].trim_end();
        write!(table, "\n{row:30}").unwrap();
        for caller in &fixture.callers {
            write!(table, " {:>1$}", fixture.cell(row, caller).await, caller.name.len()).unwrap();
        }
    }
    table.push('\n');
    assert_eq!(table, EXPECTED, "{table}");
}

#[tokio::test]
async fn missing_scope_is_named_in_the_challenge() {
    let fixture = Fixture::new().await;
    let mcp = &fixture.callers[5];
    let refused =
        crate::support::answers::normalized(&fixture.send(mcp, "GET", "/agents/a/resources", None).await);
    let mut expected = crate::support::answers::problem(
        403,
        "insufficient_scope",
        "this credential lacks the scope registry",
    );
    let challenge = "Bearer realm=\"MCP\", error=\"insufficient_scope\", scope=\"registry\"";
    expected["headers"]["www-authenticate"] = json!(challenge);
    assert_eq!(refused, expected);
}

#[tokio::test]
async fn two_different_credentials_are_refused() {
    let fixture = Fixture::new().await;
    let (_, key) = fixture.replica.key("a", &["registry"]).await;
    let operator = fixture.replica.operator.clone();
    let list = async |more: &[(&str, &str)]| {
        send(&fixture.replica, &operator, ("GET", "/agents"), more, "").await.status.as_u16()
    };
    assert_eq!(list(&[]).await, 200);
    assert_eq!(list(&[("x-agent-api-key", &key)]).await, 401);
    assert_eq!(list(&[("x-agent-api-key", &operator)]).await, 200, "the same one in both headers");
    assert_eq!(list(&[("authorization", "Basic dTpw")]).await, 401);
}
