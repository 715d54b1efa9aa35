//! Attacks with credentials of a deleted agent or tenant.

use http::StatusCode;
use serde_json::json;

use super::{owner, read, rivals};
use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::tenancy::expected_state::settled;
use crate::tenancy::probes::{Probe, message};

/// Two replicas, and an agent `a` of `acme` that is deleted and created again.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_deleted_agent_do_not_open_its_successor() {
    let database = database().await;
    let replicas = [
        Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 1).start().await,
        Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 1).start().await,
    ];
    let [writer, reader] = &replicas;
    let old = writer.acme("a").await;
    let owner = owner(writer, "acme").await;
    let revision = writer.put("a", "x:1", "of the first life").await;
    writer.put("a", "x:2", "of the first life too").await;
    let cursor_of = async |key: &str| {
        let page = reader.http.post_bearer("a", key, &message("resources/list", json!({}))).await.json();
        page["result"]["nextCursor"].as_str().unwrap().to_owned()
    };
    let cursor = cursor_of(&old).await;
    assert_eq!(reader.http.text("a", &old, "x:1").await.as_deref(), Some("of the first life"));

    assert_eq!(writer.admin("DELETE", "/agents/a", None).await.status, StatusCode::NO_CONTENT);
    writer.agent("acme", "a").await;
    let (_, new) = writer.key("a", &["mcp", "registry"]).await;
    for replica in &replicas {
        // Before anything is registered again, however late this replica learns of it.
        let first = replica.http.post_bearer("a", &owner, &read()).await;
        assert!(!first.text().contains("first life") || replica.running.address == reader.running.address);
    }
    assert!(writer.put("a", "x:1", "of the second life").await > revision, "revisions continue");
    writer.put("a", "x:2", "of the second life too").await;
    for replica in &replicas {
        settled(async || {
            let answer = replica.http.post("a", &old, &read()).await;
            assert!(!answer.text().contains("second life"), "the old key reads the new agent");
            if answer.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(answer.text()) }
        })
        .await;
        settled(async || {
            let text = replica.http.text("a", &new, "x:1").await;
            if text.as_deref() == Some("of the second life") { Ok(()) } else { Err(format!("{text:?}")) }
        })
        .await;
        let answer = replica.http.admin(&old, "GET", &resource("a", "x:1"), None).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        let page =
            replica.http.post_bearer("a", &new, &message("resources/list", json!({"cursor": cursor}))).await;
        assert_eq!(page.json()["error"]["code"], -32602, "a cursor of the deleted agent");
        let stale = Probe::get(format!("/admin/v1{}", resource("a", "x:1")))
            .send(&replica.http, Some(&owner), "")
            .await;
        assert!(!stale.text().contains("first life"));
    }
    assert_ne!(cursor_of(&new).await, cursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_tenant_is_a_different_tenant() {
    let rivals = rivals().await;
    let replica = &rivals.replica;
    assert_eq!(replica.admin("DELETE", "/tenants/rival", None).await.status, StatusCode::NO_CONTENT);
    replica.tenant("rival").await;
    replica.agent("rival", "b").await;
    let (_, key) = replica.key("b", &["mcp"]).await;
    assert_eq!(
        replica.http.call("b", &key, "resources/list", json!({})).await["result"],
        json!({"resources": []})
    );
    assert_eq!(replica.http.post_bearer("b", &rivals.rival, &read()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(replica.http.post("b", &rivals.b, &read()).await.status, StatusCode::UNAUTHORIZED);
    let keys = replica.admin("GET", "/tenants/rival/keys", None).await.json();
    assert_eq!(keys["items"], json!([]), "keys of the former tenant");
}
