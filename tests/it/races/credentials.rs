//! A credential that is revoked while it is loaded is not cached.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use waggle::model::system::FailPoint;

use super::{Pair, pair, pair_of, pair_without_notifications};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::faults::{FaultScript, Hold};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})
}

impl Pair {
    async fn status(&self, key: &str) -> StatusCode {
        self.reader.http.post("a", key, &list()).await.status
    }

    /// Sends a request with a key that the reader has not cached, and holds it between loading the key and caching it.
    fn fill(&self, key: &str) -> (Hold, JoinHandle<StatusCode>) {
        let held = self.faults.hold(FailPoint::CredentialFillRead);
        let (http, key) = (self.reader.http.clone(), key.to_owned());
        (held, tokio::spawn(async move { http.post("a", &key, &list()).await.status }))
    }

    async fn revoke(&self, id: &str) {
        let gone = self.writer.admin("DELETE", &format!("/keys/{id}"), None).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_during_the_first_cache_fill_holds() {
    let pair = pair().await;
    let (id, key) = pair.writer.key("a", &["mcp"]).await;
    let (held, first) = pair.fill(&key);
    held.meanwhile(async {
        pair.revoke(&id).await;
        pair.reader.caught_up().await;
    })
    .await;
    // It was sent before the revocation; its answer does not matter, but must not be cached.
    first.await.unwrap();
    assert_eq!(pair.status(&key).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_caught_up_during_the_fill_holds() {
    let pair = pair().await;
    let (id, key) = pair.writer.key("a", &["mcp"]).await;
    // The cached tenant is brought up to the revocation, and drops a key that is not cached yet.
    assert_eq!(pair.status(&pair.key).await, StatusCode::OK);
    let (held, first) = pair.fill(&key);
    held.meanwhile(async {
        pair.revoke(&id).await;
        pair.reader.caught_up().await;
        assert_eq!(pair.status(&pair.key).await, StatusCode::OK);
    })
    .await;
    first.await.unwrap();
    assert_eq!(pair.status(&key).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_seen_by_a_newer_fill_only_holds() {
    let pair = pair_without_notifications().await;
    let (id, key) = pair.writer.key("a", &["mcp"]).await;
    let (held, first) = pair.fill(&key);
    held.meanwhile(async {
        pair.revoke(&id).await;
        // The first cached state of the tenant includes the revocation.
        assert_eq!(pair.status(&pair.key).await, StatusCode::OK);
    })
    .await;
    first.await.unwrap();
    assert_eq!(pair.status(&key).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_notified_during_the_fill_holds_without_database() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    // Notifications take another connection.
    let reader = Builder::new(&database).store(|store| {
        store.acquire = Duration::from_secs(1);
        store.connect = proxy.options.clone();
    });
    let pair = pair_of(database, &FaultScript::new(), reader).await;
    let (id, key) = pair.writer.key("a", &["mcp"]).await;
    assert_eq!(pair.status(&pair.key).await, StatusCode::OK);
    let (held, first) = pair.fill(&key);
    held.meanwhile(async {
        let behind = async || pair.reader.metric("waggle_feed_catch_ups_total").await;
        let before = behind().await;
        proxy.swallow(true);
        pair.revoke(&id).await;
        eventually("the tenant is known to be behind", async || behind().await > before).await;
    })
    .await;
    first.await.unwrap();
    assert_eq!(pair.status(&pair.key).await, StatusCode::OK, "memory is answered for a while");
    assert_eq!(pair.status(&key).await, StatusCode::SERVICE_UNAVAILABLE);
    proxy.swallow(false);
    tokio::time::timeout(Duration::from_secs(30), pair.reader.ready()).await.unwrap();
    assert_eq!(pair.status(&key).await, StatusCode::UNAUTHORIZED);
}
