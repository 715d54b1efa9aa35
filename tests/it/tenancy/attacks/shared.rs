//! Attacks through what tenants share: equal contents, and cursors.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use waggle::store::Store;

use super::{Rivals, SECRET, owner, rivals};
use crate::support::app::{Builder, encode, resource};
use crate::support::cluster::{database, store_options};
use crate::tenancy::probes::message;

#[tokio::test(flavor = "multi_thread")]
async fn equal_contents_of_two_tenants_are_independent() {
    let rivals = rivals().await;
    let Rivals { replica, _database: database, .. } = &rivals;
    replica.agent("acme", "c").await;
    // Written where another tenant has the same bytes, and where no tenant has.
    let write = async |agent: &str, text: &str| {
        let body = json!({"name": "n", "contents": [{"text": text}]});
        replica.http.admin(&rivals.acme, "PUT", &resource(agent, "x:9"), Some(body)).await
    };
    replica.agent("acme", "d").await;
    assert_eq!(write("c", SECRET).await.visible(), write("d", "another secret").await.visible());
    let rows = "select count(*) from contents where bytes = 'rival''s secret'";
    assert_eq!(database.number(rows).await, 2, "each agent has its own");

    replica.admin("DELETE", &resource("b", "x:1"), None).await;
    let store = Store::new(store_options(database.options.clone()));
    while store.purge(time::OffsetDateTime::now_utc() + Duration::from_secs(60)).await.unwrap() {}
    store.close().await;
    assert_eq!(database.number(rows).await, 1, "the purge deleted the unreferenced contents");
    let (_, key) = replica.key("c", &["mcp"]).await;
    let fresh = Builder::new(database).start().await;
    for replica in [replica, &fresh] {
        assert_eq!(replica.http.text("c", &key, "x:9").await.as_deref(), Some(SECRET));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_is_bound_to_its_list_and_owner() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 1).start().await;
    replica.tenant("acme").await;
    replica.tenant("rival").await;
    let owners = [owner(&replica, "acme").await, owner(&replica, "rival").await];
    let messages = json!([{"role": "user", "content": {"type": "text", "text": ""}}]);
    for (tenant, agents) in [("acme", ["a1", "a2"]), ("rival", ["b1", "b2"])] {
        for agent in agents {
            replica.agent(tenant, agent).await;
            for uri in ["x:1", "x:2"] {
                replica.put(agent, uri, agent).await;
                let template = json!({"name": "n", "template": ""});
                let path = format!("/agents/{agent}/templates?uriTemplate={uri}%7Bv%7D");
                assert_eq!(replica.admin("PUT", &path, Some(template)).await.status, 201);
                let prompt = json!({"messages": messages});
                let path = format!("/agents/{agent}/prompts/{uri}");
                assert_eq!(replica.admin("PUT", &path, Some(prompt)).await.status, 201);
            }
            replica.key(agent, &["mcp"]).await;
            replica.key(agent, &["mcp"]).await;
        }
        owner(&replica, tenant).await;
    }
    let operator = replica.operator.as_str();
    let [acme, rival] = owners.each_ref().map(String::as_str);
    // Lists, and the key for each.
    let lists = [
        (acme, "/agents/a1/resources"),
        (acme, "/agents/a2/resources"),
        (rival, "/agents/b1/resources"),
        (acme, "/agents/a1/templates"),
        (acme, "/agents/a2/templates"),
        (rival, "/agents/b1/templates"),
        (acme, "/agents/a1/prompts"),
        (rival, "/agents/b1/prompts"),
        (acme, "/agents/a1/keys"),
        (rival, "/agents/b1/keys"),
        (acme, "/agents"),
        (rival, "/agents"),
        (operator, "/agents"),
        (operator, "/tenants"),
        (operator, "/tenants/acme/keys"),
        (operator, "/tenants/rival/keys"),
    ];
    let mut cursors = Vec::new();
    for (key, list) in lists {
        let page = replica.http.admin(key, "GET", &format!("{list}?limit=1"), None).await.json();
        cursors.push(page["nextCursor"].as_str().unwrap().to_owned());
    }
    for (at, (key, list)) in lists.iter().enumerate() {
        let page = |cursor: &str| format!("{list}?cursor={}", encode(cursor));
        let garbage = replica.http.admin(key, "GET", &page("AAAA"), None).await.visible();
        assert_eq!(garbage.0, StatusCode::BAD_REQUEST);
        for (from, cursor) in cursors.iter().enumerate() {
            let answer = replica.http.admin(key, "GET", &page(cursor), None).await;
            if from == at {
                assert_eq!(answer.status, StatusCode::OK, "{list}");
            } else {
                assert_eq!(answer.visible(), garbage, "a cursor of {:?} at {list}", lists[from]);
            }
        }
    }
    // At the endpoints: cursors of the administration API and of other agents.
    let mut of_endpoints = Vec::new();
    for (key, agent) in [(acme, "a1"), (acme, "a2"), (rival, "b1")] {
        let page = replica.http.post_bearer(agent, key, &message("resources/list", json!({}))).await.json();
        of_endpoints.push((agent, page["result"]["nextCursor"].as_str().unwrap().to_owned()));
    }
    for (key, agent) in [(acme, "a1"), (acme, "a2"), (rival, "b1")] {
        let list = async |cursor: &str| {
            replica.http.post_bearer(agent, key, &message("resources/list", json!({"cursor": cursor}))).await
        };
        let garbage = list("AAAA").await.visible();
        let others = of_endpoints.iter().filter(|(of, _)| *of != agent).map(|(_, cursor)| cursor);
        for cursor in cursors.iter().chain(others) {
            assert_eq!(list(cursor).await.visible(), garbage, "{agent}");
        }
        let (_, own) = of_endpoints.iter().find(|(of, _)| *of == agent).unwrap();
        assert_eq!(list(own).await.json()["result"]["resources"][0]["uri"], "x:2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_keeps_contents_that_are_still_referenced() {
    let rivals = rivals().await;
    let Rivals { replica, _database: database, .. } = &rivals;
    let purge = async || {
        let store = Store::new(store_options(database.options.clone()));
        while store.purge(time::OffsetDateTime::now_utc() + Duration::from_secs(60)).await.unwrap() {}
        store.close().await;
    };
    let path = "/agents/a/templates?uriTemplate=t:%7Bv%7D";
    let template = async |body: &str| {
        let template = json!({"name": "n", "template": body});
        assert!(replica.admin("PUT", path, Some(template)).await.status.is_success());
    };
    let prompt = async |name: &str, text: &str| {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        let put = format!("/agents/a/prompts/{name}");
        assert!(replica.admin("PUT", &put, Some(json!({"messages": messages}))).await.status.is_success());
    };
    let count = async || {
        let of = "select count(*) from contents where agent = (select uid from agents where slug = 'a')";
        database.number(of).await
    };
    purge().await;
    let before = count().await;
    // A template body that a resource has too, and messages that two prompts have.
    replica.put("a", "x:same", "body").await;
    template("old body").await;
    template("body").await;
    prompt("one", "old messages").await;
    prompt("one", "messages").await;
    prompt("two", "messages").await;
    assert_eq!(count().await, before + 4);
    purge().await;
    assert_eq!(count().await, before + 2);
    replica.admin("DELETE", &resource("a", "x:same"), None).await;
    replica.admin("DELETE", "/agents/a/prompts/two", None).await;
    purge().await;
    assert_eq!(count().await, before + 2);
    let fresh = Builder::new(database).start().await;
    let (_, key) = fresh.key("a", &["mcp"]).await;
    assert_eq!(fresh.http.text("a", &key, "t:v").await.as_deref(), Some("body"));
    let got = fresh.http.call("a", &key, "prompts/get", json!({"name": "one"})).await;
    assert_eq!(got["result"]["messages"][0]["content"]["text"], "messages");
    replica.admin("DELETE", path, None).await;
    replica.admin("DELETE", "/agents/a/prompts/one", None).await;
    purge().await;
    assert_eq!(count().await, before);

    template("body").await;
    prompt("one", "messages").await;
    assert_eq!(replica.admin("DELETE", "/agents/a", None).await.status, StatusCode::NO_CONTENT);
    purge().await;
    for table in ["templates", "prompts", "contents where bytes = 'body'"] {
        assert_eq!(database.number(&format!("select count(*) from {table}")).await, 0, "{table}");
    }
}
