//! What somebody would try who wants another tenant's agent: with paths, with credentials, with what is left over from
//! an agent that was deleted, and with what the gateway keeps for several tenants at once.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waggle::store::Store;

use super::probes::{self, Probe, UNKNOWN, message};
use super::world::settled;
use crate::app::{Builder, Replica, encode, gateway, resource};
use crate::cluster::{Database, database, store_options};
use crate::http::Answer;

/// What must never be read with a credential of `acme`.
const SECRET: &str = "rival's secret";

/// A gateway with an agent `a` of `acme` and an agent `b` of `rival`, a key of each and an owner key of each tenant.
struct Rivals {
    _database: Database,
    replica: Replica,
    a: String,
    b: String,
    acme: String,
    rival: String,
}

async fn rivals() -> Rivals {
    let (database, replica) = gateway().await;
    let mut keys = Vec::new();
    for (tenant, agent, text) in [("acme", "a", "acme's own"), ("rival", "b", SECRET)] {
        replica.tenant(tenant).await;
        replica.agent(tenant, agent).await;
        replica.put(agent, "x:1", text).await;
        keys.push(replica.key(agent, &["mcp", "registry"]).await.1);
        keys.push(owner(&replica, tenant).await);
    }
    let [a, acme, b, rival] = <[String; 4]>::try_from(keys).unwrap();
    Rivals { _database: database, replica, a, b, acme, rival }
}

async fn owner(replica: &Replica, tenant: &str) -> String {
    let made = replica.admin("POST", &format!("/tenants/{tenant}/keys"), Some(json!({}))).await.json();
    made["key"].as_str().unwrap().to_owned()
}

fn read() -> Value {
    message("resources/read", json!({"uri": "x:1"}))
}

fn text_of(answer: &Answer) -> Option<String> {
    let answer: Value = serde_json::from_slice(&answer.body).ok()?;
    answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
}

impl Rivals {
    /// Sends a request whose target stands on the wire as it is written here; answers status and body.
    async fn raw(&self, method: &str, target: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.replica.running.address;
        let mut connection = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\
             Content-Type: application/json\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_leads_to_another_tenants_agent() {
    let rivals = rivals().await;
    let address = rivals.replica.running.address;
    let spellings = [
        "/b/mcp",
        "/b/mcp/",
        "/b/mcp//",
        "//b/mcp",
        "/./b/mcp",
        "/b/./mcp",
        "/b//mcp",
        "/B/mcp",
        "/b./mcp",
        "/b;/mcp",
        "/a/mcp/../../b/mcp",
        "/a/../b/mcp",
        "/b/mcp/../mcp",
        "/a/mcp/..;/..;/b/mcp",
        "/a/..%2fb/mcp",
        "/a%2f..%2fb/mcp",
        "/a/mcp%2f..%2f..%2fb%2fmcp",
        "/a/mcp/%2e%2e/%2e%2e/b/mcp",
        "/a\\..\\b\\mcp",
        "/%62/mcp",
        "/%2562/mcp",
        "/b%2fmcp",
        "/b%2Fmcp",
        "/b%00/mcp",
        "/b%00a/mcp",
        "/b%20/mcp",
        "/b%0d%0a/mcp",
        "/b/%6dcp",
        "/b/MCP",
        "/b/mcp%20",
        "/b/mcp%00",
        "/%c0%62/mcp",
        "/%ef%bd%82/mcp",
        "/%d0%b2/mcp",
        "/b%cc%81/mcp",
        "/b%e2%80%8b/mcp",
        "/a,b/mcp",
        "/a&b/mcp",
        "/a|b/mcp",
        "/b/mcp?agent=a",
        "/a/mcp?/b/mcp",
        "/b/mcp#/a/mcp",
        "/admin/../b/mcp",
        "/healthz/../b/mcp",
        "*",
        "b/mcp",
    ];
    let absolute = [format!("http://{address}/b/mcp"), format!("http://{address}@{address}/b/mcp")];
    for spelling in spellings.into_iter().chain(absolute.iter().map(String::as_str)) {
        for key in [
            "",
            &format!("X-Agent-API-Key: {}\r\n", rivals.a),
            &format!("Authorization: Bearer {}\r\n", rivals.acme),
        ] {
            let (status, body) = rivals.raw("POST", spelling, key, &read().to_string()).await;
            assert!(
                [400, 401, 403, 404].contains(&status) || body.contains("acme's own"),
                "{spelling} {status} {body}"
            );
            assert!(!body.contains(SECRET), "{spelling} {status} {body}");
        }
    }
    assert_eq!(text_of(&rivals.replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_administers_another_tenants_agent() {
    let rivals = rivals().await;
    let spellings = [
        "/agents/b",
        "/agents/b/",
        "/agents//b",
        "/agents/B",
        "/agents/%62",
        "/agents/b%00",
        "/agents/b%20",
        "/agents/b.",
        "/agents/a/../b",
        "/agents/a%2f..%2fb",
        "/agents/a/..%2fb/resources?uri=x:1",
        "/agents/a/../b/resources?uri=x:1",
        "/agents/b%2fresources?uri=x:1",
        "/agents/%ff",
        "/agents/%ef%bd%82",
        "/agents/b;a",
        "/../v1/agents/b",
        "/agents/b/resources?uri=x:1",
        "/agents/b/resources?uri=x%3A1",
        "/agents/b/resources/content?uri=x:1",
        "/agents/a/resources?uri=x:1&agent=b",
        "/agents/a/resources?uri=../../b/resources?uri=x:1",
        "/agents?tenant=rival",
        "/agents?tenant=acme&tenant=rival",
        "/agents?tenant=rival%00",
        "/tenants/rival",
        "/tenants/acme/../rival",
        "/tenants/acme%2f..%2frival",
        "/agents?tenant=acme%2crival",
    ];
    let root = ["/admin/v1", "/ADMIN/v1", "/admin//v1", "/admin/V1", "/admin/v1/../v1", "/a/../admin/v1"];
    for target in root.iter().flat_map(|root| spellings.map(|spelling| format!("{root}{spelling}"))) {
        for key in [&rivals.acme, &rivals.a] {
            let key = format!("Authorization: Bearer {key}\r\n");
            for method in ["GET", "DELETE"] {
                let (status, body) = rivals.raw(method, &target, &key, "").await;
                assert!((400..500).contains(&status), "{method} {target} {status} {body}");
                assert!(!body.contains("rival"), "{method} {target} {status} {body}");
            }
        }
    }
    assert_eq!(text_of(&rivals.replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_header_beside_the_path_says_which_agent_is_meant() {
    let rivals = rivals().await;
    for header in [
        "X-Original-URL: /b/mcp",
        "X-Rewrite-URL: /b/mcp",
        "X-Forwarded-Path: /b/mcp",
        "X-Forwarded-Prefix: /b",
        "X-HTTP-Method-Override: DELETE",
        "X-Forwarded-For: 127.0.0.1",
        "X-Agent-Id: b",
        "Mcp-Name: x:1",
        "X-Tenant: rival",
        "Forwarded: for=127.0.0.1;host=rival",
        "Cookie: key=bak_x",
        "Mcp-Session-Id-Agent: b",
        "Via: 1.1 b",
    ] {
        let headers = format!("X-Agent-API-Key: {}\r\n{header}\r\n", rivals.a);
        let (status, body) = rivals.raw("POST", "/a/mcp", &headers, &read().to_string()).await;
        assert!(status == 200 && body.contains("acme's own"), "{header}: {status} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_credentials_are_worth_no_more_than_none() {
    let rivals = rivals().await;
    let Rivals { replica, a, b, acme, rival, .. } = &rivals;
    let bearer = |key: &str| format!("Bearer {key}");
    let cases: Vec<Vec<(&str, String)>> = vec![
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(b))],
        vec![("x-agent-api-key", b.clone()), ("authorization", bearer(a))],
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(acme))],
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(rival))],
        vec![("authorization", bearer(acme)), ("authorization", bearer(rival))],
        vec![("authorization", bearer(rival)), ("authorization", bearer(acme))],
        vec![("x-agent-api-key", a.clone()), ("x-agent-api-key", b.clone())],
        vec![("x-agent-api-key", format!("{a}, {b}"))],
        vec![("authorization", format!("{}, {}", bearer(acme), bearer(rival)))],
        vec![("authorization", bearer(&format!("{acme} {rival}")))],
        vec![("authorization", bearer(&replica.operator)), ("x-agent-api-key", a.clone())],
        vec![("authorization", format!("Basic {acme}"))],
        vec![("authorization", String::new()), ("x-agent-api-key", a.clone())],
    ];
    for headers in cases {
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.push(("content-type", "application/json"));
        for agent in ["a", "b", UNKNOWN] {
            let answer =
                replica.http.send("POST", &format!("/{agent}/mcp"), &headers, read().to_string()).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{headers:?}");
            assert_eq!(answer.json()["error"]["data"]["code"], "unauthenticated");
        }
        for path in ["/admin/v1/agents/a", "/admin/v1/agents/b", "/admin/v1/tenants"] {
            let answer = replica.http.send("GET", path, &headers, "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
        }
    }
    for path in ["/b/mcp?key=", "/b/mcp?x-agent-api-key=", "/b/mcp?access_token="] {
        let headers = [("content-type", "application/json")];
        let answer = replica.http.send("POST", &format!("{path}{b}"), &headers, read().to_string()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "a key in a URL stays in logs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_key_reads_no_agent_and_learns_of_none_at_the_endpoints() {
    let rivals = rivals().await;
    let operator = rivals.replica.operator.as_str();
    for probe in probes::of_endpoints("x:1") {
        probe.tells_nothing(&rivals.replica.http, Some(operator), "b", UNKNOWN).await.unwrap();
        let answer = probe.send(&rivals.replica.http, Some(operator), "b").await;
        assert!(!answer.text().contains(SECRET), "{probe:?}");
    }
}

/// Everything that strangers can send, all of it, with every kind of credential that is good for something else.
#[tokio::test(flavor = "multi_thread")]
async fn no_stranger_can_tell_an_agent_that_is_not_theirs_from_one_that_is_not() {
    let rivals = rivals().await;
    let replica = &rivals.replica;
    replica.agent("rival", "disabled").await;
    replica.agent("rival", "gone").await;
    replica.agent("rival", "empty").await;
    replica.admin("PATCH", "/agents/disabled", Some(json!({"enabled": false}))).await;
    replica.admin("DELETE", "/agents/gone", None).await;
    let (revoked, secret) = replica.key("a", &["mcp"]).await;
    replica.admin("DELETE", &format!("/keys/{revoked}"), None).await;
    let (_, registry) = replica.key("a", &["registry"]).await;
    let (_, audit) = replica.key("a", &["audit"]).await;
    let typo = format!("{}x", &rivals.a[..52]);
    let bearers = [
        None,
        Some(&*rivals.a),
        Some(&*rivals.acme),
        Some(&*secret),
        Some(&*registry),
        Some(&*audit),
        Some(&*typo),
    ];
    for bearer in bearers {
        for agent in ["b", "disabled", "gone", "empty"] {
            for probe in probes::of_endpoints("x:1").iter().chain(&probes::of_administration("x:1")) {
                probe.tells_nothing(&replica.http, bearer, agent, UNKNOWN).await.unwrap();
            }
        }
        for probe in probes::of_tenants() {
            probe.tells_nothing(&replica.http, bearer, "rival", UNKNOWN).await.unwrap();
        }
    }
    assert_eq!(text_of(&replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
    assert_eq!(text_of(&replica.http.ask("b", &rivals.rival, &read()).await).as_deref(), Some(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_slug_is_told_and_nothing_of_who_has_it() {
    let rivals = rivals().await;
    let replica = &rivals.replica;
    replica.agent("rival", "gone").await;
    replica.admin("DELETE", "/agents/gone", None).await;
    for (id, code) in [("b", "already_exists"), ("gone", "slug_retired")] {
        let answer = replica
            .http
            .admin(&rivals.acme, "POST", "/agents", Some(json!({"id": id, "tenant": "acme"})))
            .await;
        assert_eq!((answer.status, &answer.json()["code"]), (StatusCode::CONFLICT, &json!(code)));
        assert!(!answer.text().contains("rival"), "{}", answer.text());
    }
}

/// Two replicas, and an agent `a` of `acme` that was deleted and made again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_deleted_agent_opens_the_one_that_has_its_slug_now() {
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
        let page = reader.http.ask("a", key, &message("resources/list", json!({}))).await.json();
        page["result"]["nextCursor"].as_str().unwrap().to_owned()
    };
    let cursor = cursor_of(&old).await;
    assert_eq!(reader.http.text("a", &old, "x:1").await.as_deref(), Some("of the first life"));

    assert_eq!(writer.admin("DELETE", "/agents/a", None).await.status, StatusCode::NO_CONTENT);
    writer.agent("acme", "a").await;
    let (_, new) = writer.key("a", &["mcp", "registry"]).await;
    for replica in &replicas {
        // Before anything was registered again, and however late this replica hears of it.
        let first = replica.http.ask("a", &owner, &read()).await;
        assert!(!first.text().contains("first life") || replica.running.address == reader.running.address);
    }
    assert!(writer.put("a", "x:1", "of the second life").await > revision, "revisions go on");
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
        let page = replica.http.ask("a", &new, &message("resources/list", json!({"cursor": cursor}))).await;
        assert_eq!(page.json()["error"]["code"], -32602, "a cursor of the former life");
        let stale = Probe::get(format!("/admin/v1{}", resource("a", "x:1")))
            .send(&replica.http, Some(&owner), "")
            .await;
        assert!(!stale.text().contains("first life"));
    }
    assert_ne!(cursor_of(&new).await, cursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_made_again_is_another_one() {
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
    assert_eq!(replica.http.ask("b", &rivals.rival, &read()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(replica.http.post("b", &rivals.b, &read()).await.status, StatusCode::UNAUTHORIZED);
    let keys = replica.admin("GET", "/tenants/rival/keys", None).await.json();
    assert_eq!(keys["items"], json!([]), "keys of the former tenant");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_at_two_tenants_are_nobodys_oracle_and_outlive_each_other() {
    let rivals = rivals().await;
    let Rivals { replica, _database: database, .. } = &rivals;
    replica.agent("acme", "c").await;
    // Written where another tenant has the same bytes, and where nobody has.
    let write = async |agent: &str, text: &str| {
        let body = json!({"name": "n", "contents": [{"text": text}]});
        replica.http.admin(&rivals.acme, "PUT", &resource(agent, "x:9"), Some(body)).await
    };
    replica.agent("acme", "d").await;
    assert_eq!(write("c", SECRET).await.visible(), write("d", "nobody's secret").await.visible());
    let rows = "select count(*) from contents where bytes = 'rival''s secret'";
    assert_eq!(database.number(rows).await, 2, "each agent has its own");

    replica.admin("DELETE", &resource("b", "x:1"), None).await;
    let store = Store::new(store_options(database.options.clone()));
    while store.purge(time::OffsetDateTime::now_utc() + Duration::from_secs(60)).await.unwrap() {}
    store.close().await;
    assert_eq!(database.number(rows).await, 1, "the purge took away the one that nothing names");
    let (_, key) = replica.key("c", &["mcp"]).await;
    let fresh = Builder::new(database).start().await;
    for replica in [replica, &fresh] {
        assert_eq!(replica.http.text("c", &key, "x:9").await.as_deref(), Some(SECRET));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_purge_takes_what_templates_and_prompts_named_and_keeps_what_they_name() {
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
    // A body that a resource has too, and messages that two prompts have.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_good_for_the_one_list_of_the_one_thing_it_was_given_for() {
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
    // Lists, and with whose key they are asked for.
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
    // At the endpoints, those of the admin surface and of other agents.
    let mut of_endpoints = Vec::new();
    for (key, agent) in [(acme, "a1"), (acme, "a2"), (rival, "b1")] {
        let page = replica.http.ask(agent, key, &message("resources/list", json!({}))).await.json();
        of_endpoints.push((agent, page["result"]["nextCursor"].as_str().unwrap().to_owned()));
    }
    for (key, agent) in [(acme, "a1"), (acme, "a2"), (rival, "b1")] {
        let list = async |cursor: &str| {
            replica.http.ask(agent, key, &message("resources/list", json!({"cursor": cursor}))).await
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
