//! No caller consumes the rate of another, or learns from a rate that an agent exists.

use std::sync::Arc;

use serde_json::json;

use super::{five_for_a_key, left, list, lists};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::load_counter::LoadCounter;

#[tokio::test]
async fn foreign_key_neither_consumes_nor_discovers_an_agent() {
    let database = database().await;
    let replica = five_for_a_key(&database)
        .set("WAGGLE_LIMITS__AGENT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__AGENT_BURST", 7)
        .set("WAGGLE_LIMITS__TENANT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__TENANT_BURST", 7)
        .start()
        .await;
    let victim = replica.acme("a").await;
    replica.tenant("rival").await;
    replica.agent("rival", "r").await;
    let (_, foreign) = replica.key("r", &["mcp"]).await;
    let mut answers = Vec::new();
    for agent in ["a", "unknown", "a", "unknown"] {
        for _ in 0..20 {
            answers.push(list(&replica, agent, &foreign).await.visible());
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0].0, 403);
    assert_eq!(left(&list(&replica, "a", &victim).await).as_deref(), Some("\"key\";r=4"));
    assert_eq!(left(&list(&replica, "r", &foreign).await).as_deref(), Some("\"key\";r=4"), "nor its own");
}

#[tokio::test]
async fn unknown_and_foreign_agents_cost_equal_look_ups() {
    let database = database().await;
    let elsewhere = Builder::new(&database).start().await;
    elsewhere.acme("a").await;
    elsewhere.tenant("rival").await;
    elsewhere.agent("rival", "r").await;
    let (_, foreign) = elsewhere.key("r", &["mcp"]).await;
    let loads = Arc::new(LoadCounter::default());
    let replica = Builder::new(&database).fault_injector(Arc::clone(&loads) as Arc<_>).start().await;
    list(&replica, "r", &foreign).await;
    let mut costs = Vec::new();
    for agent in ["a", "unknown"] {
        let before = loads.count();
        assert_eq!(list(&replica, agent, &foreign).await.status, 403);
        let first = loads.count();
        assert_eq!(list(&replica, agent, &foreign).await.status, 403);
        costs.push((first - before, loads.count() - first));
    }
    assert_eq!(costs, [(1, 0), (1, 0)]);
}

#[tokio::test]
async fn anonymous_callers_share_the_rate_left_by_the_owner() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__AGENT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__AGENT_BURST", 5)
        .set("WAGGLE_LIMITS__TENANT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__TENANT_BURST", 5)
        .start()
        .await;
    let own = replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    replica.tenant("rival").await;
    replica.agent("rival", "r").await;
    let (_, foreign) = replica.key("r", &["mcp"]).await;
    assert_eq!(lists(&replica, "a", &foreign, 6).await, [200, 200, 200, 200, 200, 429]);
    assert_eq!(lists(&replica, "a", &own, 6).await, [200, 200, 200, 200, 200, 429]);
    assert_eq!(lists(&replica, "r", &foreign, 1).await, [200], "what it took was not its own tenant's");
}
