//! A change of a connection acts on every replica.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;
use waggle::model::caller::Payer;
use waggle::model::fault::Fault;
use waggle::model::ids::{ConnectionId, TenantId};
use waggle::sources::Connection;

use super::{Keys, http};
use crate::support::app::Replica;
use crate::support::cluster::{Database, database};
use crate::support::metrics::sample;
use crate::support::wait::eventually;

async fn two_replicas() -> (Keys, Database, [Replica; 2]) {
    let (keys, database) = (Keys::new(), database().await);
    let replicas = [keys.replica(&database).start().await, keys.replica(&database).start().await];
    (keys, database, replicas)
}

async fn tenant(replica: &Replica, id: &str) -> TenantId {
    replica.tenant(id).await;
    let slug = waggle::model::ids::Slug::parse(id).unwrap();
    replica.running.services.identity.tenant(&slug).await.unwrap().uid
}

async fn get(replica: &Replica, uid: ConnectionId) -> Option<Arc<Connection>> {
    replica.running.services.connections.get(Payer::Gateway, uid).await.unwrap()
}

#[tokio::test]
async fn changed_connection_is_another_one_on_every_replica() {
    let (_keys, _database, [writer, reader]) = two_replicas().await;
    let [acme, bee] = [tenant(&writer, "acme").await, tenant(&writer, "bee").await];
    let mut new = http("api");
    (new["tenants"], new["secrets"]) = (json!(["acme"]), json!({"headers": {"X-Key": "hunter2"}}));
    assert_eq!(writer.admin("POST", "/connections", Some(new)).await.status, 201);
    let connections = &reader.running.services.connections;
    let named = connections.named(acme, &["api".to_owned()]).await.unwrap();
    let uid = named.values().next().unwrap().uid;
    let before = get(&reader, uid).await.unwrap();
    assert_eq!(
        (before.revision.0, before.tenants.contains(acme), before.tenants.contains(bee)),
        (1, true, false)
    );
    assert!(before.source(acme).is_ok() && before.source(bee).is_err());
    let again = get(&reader, uid).await.unwrap();
    assert!(Arc::ptr_eq(&before, &again), "an unchanged connection stays in memory with its source");

    let rekeyed = writer.admin("POST", "/connection-secrets/rekey", None).await;
    assert_eq!(rekeyed.status, 200);
    let change = json!({"tenants": ["bee"], "limits": {"timeoutMs": 100}});
    assert_eq!(writer.admin("PATCH", "/connections/api", Some(change)).await.status, 200);
    assert_eq!(get(&writer, uid).await.unwrap().revision.0, 2, "the writer's next read is of the change");
    eventually("the other replica has it", async || get(&reader, uid).await.unwrap().revision.0 == 2).await;
    let after = get(&reader, uid).await.unwrap();
    assert_eq!(
        (after.limits.timeout_ms, after.source(bee).is_ok(), after.source(acme).is_ok()),
        (100, true, false)
    );

    let disabled = writer.admin("PATCH", "/connections/api", Some(json!({"enabled": false}))).await;
    assert_eq!(disabled.status, 200);
    eventually("it is disabled", async || get(&reader, uid).await.unwrap().source(bee).is_err()).await;
    assert_eq!(writer.admin("DELETE", "/connections/api", None).await.status, 204);
    eventually("it is gone", async || get(&reader, uid).await.is_none()).await;
    let recreated = writer.admin("POST", "/connections", Some(http("api"))).await;
    assert_eq!(recreated.status, 201);
    let named = connections.named(acme, &["api".to_owned()]).await.unwrap();
    assert_ne!(named.values().next().unwrap().uid, uid, "a connection of the same id is another one");
}

#[tokio::test]
async fn unknown_and_foreign_connections_are_refused_alike() {
    let (_keys, _database, [replica, _]) = two_replicas().await;
    let acme = tenant(&replica, "acme").await;
    let connections = &replica.running.services.connections;
    let refusal = async |id: &str| connections.named(acme, &[id.to_owned()]).await.unwrap_err();
    let unknown = Fault::InvalidParams("unknown connection: api".into());
    assert_eq!(refusal("api").await, unknown);
    let mut new = http("api");
    new["tenants"] = json!([]);
    replica.admin("POST", "/connections", Some(new)).await;
    assert_eq!(refusal("api").await, unknown);
    let none = ConnectionId(Uuid::from_u128(1));
    assert!(get(&replica, none).await.is_none());
}

#[tokio::test]
async fn connection_whose_key_is_missing_fails_until_the_file_is_repaired() {
    let (keys, _database, [writer, reader]) = two_replicas().await;
    let acme = tenant(&writer, "acme").await;
    let mut new = http("api");
    new["secrets"] = json!({"headers": {"X-Key": "hunter2"}});
    writer.admin("POST", "/connections", Some(new)).await;
    let named = reader.running.services.connections.named(acme, &["api".to_owned()]).await.unwrap();
    let uid = named.values().next().unwrap().uid;
    keys.write(&[2]);
    let unusable = get(&reader, uid).await.unwrap();
    assert!(unusable.source(acme).is_err());
    assert!(Arc::ptr_eq(&unusable, &get(&reader, uid).await.unwrap()), "not built for each use");
    let metrics = reader.http.get("/metrics").await.text();
    assert_eq!(sample(&metrics, "waggle_connection_failing{connection=\"api\"}"), Some("1"));
    assert_eq!(reader.admin("GET", "/connections/api", None).await.json()["state"], "failed");
    let detail = "secrets.headers cannot be decrypted: it is encrypted under the key ";
    let change = json!({"settings": {"headers": {"Accept": "text/plain"}}});
    let refused = writer.admin("PATCH", "/connections/api", Some(change)).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["detail"].as_str().unwrap().starts_with(detail), "{}", refused.text());
    assert_eq!(writer.admin("PATCH", "/connections/api", Some(json!({"enabled": true}))).await.status, 200);
    assert_eq!(writer.admin("PATCH", "/connections/api", Some(json!({"enabled": false}))).await.status, 200);
    eventually("it is disabled", async || !get(&reader, uid).await.unwrap().enabled).await;
    let metrics = reader.http.get("/metrics").await.text();
    assert_eq!(sample(&metrics, "waggle_connection_failing{connection=\"api\"}"), Some("0"));
    assert_eq!(writer.admin("PATCH", "/connections/api", Some(json!({"enabled": true}))).await.status, 200);
    keys.write(&[2, 1]);
    eventually("the repaired file is used", async || get(&reader, uid).await.unwrap().source(acme).is_ok())
        .await;
    let metrics = reader.http.get("/metrics").await.text();
    assert_eq!(sample(&metrics, "waggle_connection_failing{connection=\"api\"}"), Some("0"));
    keys.write(&[2]);
    let replaced = json!({"secrets": {"headers": {"X-Key": "hunter3"}}});
    assert_eq!(writer.admin("PATCH", "/connections/api", Some(replaced)).await.status, 200);
    eventually("the new secret is used", async || {
        let connection = get(&reader, uid).await.unwrap();
        connection.revision.0 == 4 && connection.source(acme).is_ok()
    })
    .await;
}
