//! Access tokens: validation, grants and challenges.

mod bad;
mod claims;
mod life;
mod metadata;
mod reload;
mod rotation;

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::issuer::Issuer;
use crate::support::signer::Signer;

const ISSUERS: &str = "WAGGLE_TOKENS__ISSUERS";
/// The public URL of the gateways in these tests.
pub(crate) const PUBLIC_URL: &str = "https://mcp.example.com";

/// A gateway that trusts one issuer, with the agents `a` and `b` of `acme` and `c` of `bee`.
pub(crate) struct Fixture {
    _database: Database,
    pub(crate) replica: Replica,
    issuer: Issuer,
    signer: Signer,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::configured(json!({}), change).await
    }

    /// With additional members of the issuer's entry.
    pub(crate) async fn entry(entry: Value) -> Self {
        Self::configured(entry, |builder| builder).await
    }

    async fn configured(entry: Value, change: impl FnOnce(Builder) -> Builder) -> Self {
        let signer = Signer::new("k1", "ES256");
        let issuer = Issuer::start(&[&signer]).await;
        let database = database().await;
        let entries = [with(entry_of(&issuer), entry)];
        let replica = change(believing(&database, &issuer)).set(ISSUERS, json!(entries)).start().await;
        for (tenant, agents) in [("acme", &["a", "b"][..]), ("bee", &["c"])] {
            replica.tenant(tenant).await;
            for agent in agents {
                replica.agent(tenant, agent).await;
            }
        }
        Self { _database: database, replica, issuer, signer }
    }

    /// The claims of a valid token for the agent `a`.
    fn claims(&self) -> Value {
        claims_for(&self.issuer.url(), "a")
    }

    /// The same claims with changes; `null` removes one.
    fn claims_with(&self, change: Value) -> Value {
        with(self.claims(), change)
    }

    /// A valid token with changed claims.
    pub(crate) fn token(&self, change: Value) -> String {
        self.signer.token(&self.claims_with(change))
    }

    async fn ping(&self, agent: &str, token: &str) -> Answer {
        ping(&self.replica, agent, token).await
    }

    async fn status(&self, agent: &str, token: &str) -> u16 {
        self.ping(agent, token).await.status.as_u16()
    }
}

/// A gateway that trusts an issuer, with the intervals of a test.
pub(crate) fn believing(database: &Database, issuer: &Issuer) -> Builder {
    Builder::new(database)
        .set("WAGGLE_SERVER__PUBLIC_URL", PUBLIC_URL)
        .set(ISSUERS, json!([entry_of(issuer)]))
        .set("WAGGLE_TOKENS__LEEWAY_SECONDS", 5)
        .set("WAGGLE_TOKENS__UNKNOWN_KEY_SECONDS", 1)
}

/// The entry of an issuer whose tokens may reach every tenant.
fn entry_of(issuer: &Issuer) -> Value {
    json!({"issuer": issuer.url(), "tenants": "*"})
}

fn endpoint(agent: &str) -> String {
    format!("{PUBLIC_URL}/{agent}/mcp")
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

pub(crate) fn claims_for(issuer: &str, agent: &str) -> Value {
    json!({
        "iss": issuer, "sub": "alice", "aud": endpoint(agent), "iat": now(), "nbf": now(), "exp": now() + 600,
        "scope": "mcp", "waggle_tenant": "acme", "client_id": "an app",
    })
}

pub(crate) fn with(mut claims: Value, change: Value) -> Value {
    for (name, value) in change.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

async fn ping(replica: &Replica, agent: &str, token: &str) -> Answer {
    replica.http.post_bearer(agent, token, &json!({"jsonrpc": "2.0", "id": 7, "method": "ping"})).await
}
