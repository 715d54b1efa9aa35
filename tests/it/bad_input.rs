//! Invalid requests of every kind: each answer names the error, and none causes an internal error.

mod bodies;
mod definitions;
mod fields;
mod manifests;
mod messages;
mod prompts;
mod sockets;
mod templates;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::answers::{exact, problem};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::errors::ErrorLog;

/// A gateway with one object of each kind, and a record of its errors.
struct Fixture {
    replica: Replica,
    key: String,
    errors: ErrorLog,
    before: Value,
    requests: usize,
}

impl Fixture {
    async fn new() -> Self {
        Self::within(30).await
    }

    /// With this timeout for a request, in seconds.
    async fn within(seconds: u32) -> Self {
        let errors = ErrorLog::start();
        let database = database().await;
        let replica = Builder::new(&database).set("WAGGLE_SERVER__REQUEST_SECONDS", seconds).start().await;
        let key = replica.acme("a").await;
        replica.put("a", "x:1", "text").await;
        let before = all(&replica).await;
        Self { replica, key, errors, before, requests: 0 }
    }

    /// Sends an administration call as the operator, with a body declared as JSON.
    async fn admin(&mut self, (method, path): (&str, &str), body: impl Into<Bytes>) -> Value {
        let bearer = format!("Bearer {}", self.replica.operator);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.send(method, &format!("/admin/v1{path}"), &headers, body).await
    }

    /// Posts to the endpoint of `a`, with its key.
    async fn post(&mut self, more: &[(&str, &str)], body: impl Into<Bytes>) -> Value {
        let key = self.key.clone();
        let mut headers = vec![("x-agent-api-key", key.as_str()), ("content-type", "application/json")];
        headers.extend_from_slice(more);
        self.send("POST", "/a/mcp", &headers, body).await
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Value {
        self.requests += 1;
        exact(&self.replica.http.send(method, path, headers, body).await)
    }

    /// Checks that nothing was written, nothing was logged as an error, and the gateway still serves.
    async fn check_unaffected(self) -> usize {
        assert_eq!(all(&self.replica).await, self.before);
        assert_eq!(self.replica.http.text("a", &self.key, "x:1").await.as_deref(), Some("text"));
        assert_eq!(self.errors.take(), [""; 0]);
        self.requests
    }
}

/// All objects.
async fn all(replica: &Replica) -> Value {
    let mut all = json!({});
    for list in [
        "/tenants",
        "/agents",
        "/agents/a/keys",
        "/tenants/acme/keys",
        "/agents/a/resources",
        "/agents/a/templates",
        "/agents/a/prompts",
    ] {
        all[list] = replica.admin("GET", list, None).await.json();
    }
    for key in all["/agents/a/keys"]["items"].as_array_mut().unwrap() {
        key["lastUsedAt"] = Value::Null;
    }
    all["revision"] = replica.admin("GET", "/agents/a", None).await.revision().into();
    all
}

fn invalid(detail: &str) -> Value {
    problem(400, "invalid_params", detail)
}
