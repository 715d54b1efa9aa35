//! Every kind of credential, on a gateway with two tenants.

use serde_json::{Value, json};

use crate::connections::Keys;
use crate::support::app::Replica;
use crate::support::http::Answer;
use crate::tokens;

/// The rate of a key without limits of its own: high enough for the test.
const RATE: u32 = 400_000;

/// A credential.
pub(super) struct Caller {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    secret: Option<String>,
}

/// The agents `a` and `b` of `acme` and `c` of `bee`, and the callers.
pub(super) struct Gateway {
    fixture: tokens::Fixture,
    pub(super) callers: Vec<Caller>,
    /// Encrypts secrets.
    _keys: Keys,
}

impl Gateway {
    pub(super) async fn start() -> Self {
        let keys = Keys::new();
        let rate = |builder: crate::support::app::Builder| {
            let builder = builder.set("WAGGLE_SOURCES__KEY_FILE", keys.file().display());
            builder.set("WAGGLE_LIMITS__KEY_PER_SECOND", RATE).set("WAGGLE_LIMITS__KEY_BURST", RATE)
        };
        let fixture = tokens::Fixture::with(rate).await;
        let replica = &fixture.replica;
        let all = json!(["mcp", "registry", "audit"]);
        let key = async |path: &str, body: Value| {
            let made = replica.admin("POST", path, Some(body)).await.json();
            made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
        };
        let owner = async |scopes: Value| key("/tenants/acme/keys", json!({"scopes": scopes})).await;
        let agent = async |scopes: Value| key("/agents/a/keys", json!({"scopes": scopes})).await;
        let narrow = json!({
            "scopes": ["registry"], "networks": ["127.0.0.0/8"], "expiresAt": "2999-01-01T00:00:00Z",
            "limits": {"perSecond": RATE / 2, "burst": RATE / 2},
        });
        let token = |scope: &str, tenant: &str| {
            fixture.token(json!({"aud": tokens::PUBLIC_URL, "scope": scope, "waggle_tenant": tenant}))
        };
        let revoked = replica.key("a", &["mcp", "registry", "audit"]).await;
        replica.admin("DELETE", &format!("/keys/{}", revoked.0), None).await;
        let callers = [
            ("none", "no credential", None),
            ("revoked", "a revoked key of the agent", Some(revoked.1)),
            ("operator", "the operator key", Some(replica.operator.clone())),
            ("owner", "an owner key of the tenant with all scopes", Some(owner(all.clone()).await)),
            (
                "owner narrow",
                "an owner key with the scope `registry`, one network, an expiry and a lower rate",
                Some(key("/tenants/acme/keys", narrow).await),
            ),
            ("owner mcp", "an owner key with the scope `mcp`", Some(owner(json!(["mcp"])).await)),
            ("owner audit", "an owner key with the scope `audit`", Some(owner(json!(["audit"])).await)),
            ("agent mcp", "a key of the agent with the scope `mcp`", Some(agent(json!(["mcp"])).await)),
            (
                "agent registry",
                "a key of the agent with the scope `registry`",
                Some(agent(json!(["registry"])).await),
            ),
            ("agent audit", "a key of the agent with the scope `audit`", Some(agent(json!(["audit"])).await)),
            (
                "sibling",
                "a key of another agent of the tenant with all scopes",
                Some(key("/agents/b/keys", json!({"scopes": all})).await),
            ),
            ("token mcp", "an access token for the tenant with the scope `mcp`", Some(token("mcp", "acme"))),
            (
                "token registry",
                "an access token for the tenant with the scope `registry`",
                Some(token("registry", "acme")),
            ),
            (
                "token audit",
                "an access token for the tenant with the scope `audit`",
                Some(token("audit", "acme")),
            ),
            (
                "foreign owner",
                "an owner key of another tenant with all scopes",
                Some(key("/tenants/bee/keys", json!({})).await),
            ),
            (
                "foreign token",
                "an access token for another tenant with all scopes",
                Some(token("mcp registry audit", "bee")),
            ),
        ];
        let callers = callers.map(|(name, what, secret)| Caller { name, what, secret });
        Self { fixture, callers: callers.into(), _keys: keys }
    }

    fn replica(&self) -> &Replica {
        &self.fixture.replica
    }

    /// A call by a caller.
    pub(super) async fn call(
        &self,
        caller: &Caller,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let bearer = caller.secret.as_ref().map(|secret| format!("Bearer {secret}"));
        let mut headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        headers.extend(body.map(|_| ("content-type", "application/json")));
        let body = body.map(Value::to_string).unwrap_or_default();
        self.replica().http.send(method, &format!("/admin/v1{path}"), &headers, body).await
    }

    /// A call of the operator that succeeds, or fails because its object already exists.
    pub(super) async fn prepare(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let answer = self.replica().admin(method, path, body).await;
        let status = answer.status.as_u16();
        assert!(matches!(status, 200..300 | 409 | 404), "{method} {path} {}", answer.text());
        answer
    }

    /// Creates the agent `spare` of `acme` again, with one key; returns the key's id.
    pub(super) async fn spare_key(&self, key: Value) -> String {
        self.prepare("DELETE", "/agents/spare", None).await;
        self.prepare("POST", "/agents", Some(json!({"id": "spare", "tenant": "acme"}))).await;
        let made = self.prepare("POST", "/agents/spare/keys", Some(key)).await.json();
        made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }
}
