//! The cost of requests, and refusals by rate.

use serde_json::{Value, json};

use super::{five_for_a_key, left, list, lists, message};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::events::{Session, listen};

#[tokio::test]
async fn exhausted_rate_is_refused_with_a_retry_time() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let first = list(&replica, "a", &key).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some("\"key\";q=5;w=5"));
    assert_eq!(first.header("ratelimit"), Some("\"key\";r=4;t=1"));
    assert_eq!(lists(&replica, "a", &key, 4).await, [200; 4]);
    let refused = list(&replica, "a", &key).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"key\";q=5;w=5"));
    assert_eq!(refused.header("ratelimit"), Some("\"key\";r=0;t=1"));
    let mut body = refused.json();
    let wait = body["error"]["data"]["retryAfterMs"].take();
    assert!((1..=1_000).contains(&wait.as_u64().unwrap()), "{wait}");
    let expected = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "error": {
            "code": -31015,
            "message": "rate limit exceeded: 1 request/s for this key; retry in 1 s",
            "data": {"code": "rate_limited", "retryAfterMs": null, "scope": "key"},
        },
    });
    assert_eq!(body, expected);
    // Not for a condition: the answer states the wait.
    tokio::time::sleep(std::time::Duration::from_millis(wait.as_u64().unwrap())).await;
    assert_eq!(list(&replica, "a", &key).await.status, 200);
}

#[tokio::test]
async fn requests_of_unknown_sessions_are_charged() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let end = async |nth: usize| {
        let (bearer, session) = (format!("Bearer {key}"), format!("{nth:043}"));
        let headers = [("authorization", bearer.as_str()), ("mcp-session-id", &session)];
        let answer = replica.http.send("DELETE", "/a/mcp", &headers, "").await;
        assert_eq!(answer.header("ratelimit-policy"), Some("\"key\";q=5;w=5"));
        (answer.status.as_u16(), left(&answer).is_some())
    };
    let mut answers = Vec::new();
    for nth in 0..6 {
        answers.push(end(nth).await);
    }
    let refused = (404, true);
    assert_eq!(answers, [refused, refused, refused, refused, refused, (429, true)]);
}

#[tokio::test]
async fn charged_request_beyond_a_quota_has_the_state_of_its_rate() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let limits = json!({"limits": {"callsPerDay": 1}});
    assert_eq!(replica.admin("PATCH", "/agents/a", Some(limits)).await.status, 200);
    // The quota has a call left, so that it does not refuse before the body is read.
    let batch =
        json!([message("ping", json!({})), message(super::LIST, json!({})), message(super::LIST, json!({}))]);
    let refused = replica.http.post("a", &key, &batch).await;
    assert_eq!((refused.status.as_u16(), refused.json()["error"]["code"].clone()), (429, json!(-31016)));
    assert!(left(&refused).is_some_and(|left| left.starts_with("\"key\";r=")), "{refused:?}");
}

#[tokio::test]
async fn request_is_charged_the_cost_of_its_method() {
    let database = database().await;
    let replica = five_for_a_key(&database)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 1000)
        .set("WAGGLE_COSTS__LIST", 10)
        .set("WAGGLE_COSTS__READ", 20)
        .set("WAGGLE_COSTS__PROMPT", 30)
        .set("WAGGLE_COSTS__COMPLETE", 40)
        .set("WAGGLE_COSTS__STREAM", 50)
        .set("WAGGLE_COSTS__OTHER", 60)
        .start()
        .await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "one").await;
    let mut had = 1000;
    let mut taken = async |message: &Value| {
        let answer = replica.http.post("a", &key, message).await;
        let header = answer.header("ratelimit").unwrap().to_owned();
        let now = header.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse::<i32>().unwrap();
        std::mem::replace(&mut had, now) - now
    };
    let reference = json!({"type": "ref/prompt", "name": "none"});
    let complete = json!({"ref": reference, "argument": {"name": "a", "value": ""}});
    for (method, params, cost) in [
        ("resources/list", json!({}), 10),
        ("resources/templates/list", json!({}), 10),
        ("prompts/list", json!({}), 10),
        ("tools/list", json!({}), 10),
        ("resources/read", json!({"uri": "x:1"}), 20),
        ("resources/read", json!({"uri": "x:none"}), 20),
        ("prompts/get", json!({"name": "none"}), 30),
        ("completion/complete", complete, 40),
        ("skills/list", json!({}), 10),
        ("skills/get", json!({"uri": "skill://none/SKILL.md"}), 20),
        ("resources/directory/read", json!({"uri": "skill://none"}), 10),
        ("tools/call", json!({"name": "list_resources"}), 10),
        ("tools/call", json!({"name": "list_prompts"}), 10),
        ("tools/call", json!({"name": "read_resource"}), 20),
        ("tools/call", json!({"name": "get_prompt"}), 30),
        ("tools/call", json!({"name": "none"}), 30),
        ("tools/call", json!({}), 60),
        ("ping", json!({}), 60),
        ("no/such/method", json!({}), 60),
    ] {
        // One unit per second is restored.
        let units = taken(&message(method, params)).await;
        assert!((cost - 2..=cost).contains(&units), "{method}: {units}");
    }
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "resources/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "x:1"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
    ]);
    let units = taken(&batch).await;
    assert!((88..=90).contains(&units), "{units}");
}

#[tokio::test]
async fn stream_costs_five_and_discovery_is_free() {
    let database = database().await;
    let replica = five_for_a_key(&database).set("WAGGLE_LIMITS__KEY_BURST", 13).start().await;
    let key = replica.acme("a").await;
    listen(&replica, "a", &key, json!(1), json!({"resourcesListChanged": true})).await;
    let session = Session::open(&replica, "a", &key, "2025-11-25").await;
    let _stream = session.stream(&replica, None).await;
    assert_eq!(lists(&replica, "a", &key, 3).await[2], 429);
    let client = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = message("server/discover", json!({"_meta": client})).to_string();
    let headers = [
        ("x-agent-api-key", &*key),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "server/discover"),
    ];
    for _ in 0..5 {
        let discovered = replica.http.send("POST", "/a/mcp", &headers, body.clone()).await;
        assert_eq!((discovered.status.as_u16(), left(&discovered)), (200, None), "{}", discovered.text());
    }
}

#[tokio::test]
async fn legacy_discovery_is_charged_as_an_unknown_method() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let member = |id| json!({"jsonrpc": "2.0", "id": id, "method": "server/discover"});
    let batch: Vec<_> = (0..4).map(member).collect();
    let answered = replica.http.post("a", &key, &json!(batch)).await;
    assert_eq!((answered.status.as_u16(), left(&answered).as_deref()), (200, Some("\"key\";r=1")));
    let answered = replica.http.post("a", &key, &member(1)).await;
    assert_eq!(answered.json()["error"]["code"], -32601);
    assert_eq!(lists(&replica, "a", &key, 1).await, [429]);
    // 2026-07-28 has no batches: one is charged as what is refused, though discovery is free.
    let (_, other) = replica.key("a", &["mcp"]).await;
    let headers = [
        ("x-agent-api-key", other.as_str()),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
    ];
    let batch = json!([member(1)]).to_string();
    let answered = replica.http.send("POST", "/a/mcp", &headers, batch).await;
    assert_eq!((answered.status.as_u16(), left(&answered).as_deref()), (400, Some("\"key\";r=4")));
}

#[tokio::test]
async fn request_refused_before_its_body_is_charged_to_its_key() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let (_, long) = replica.key("a", &["mcp"]).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let headers = [("x-agent-api-key", long.as_str()), ("content-type", "application/json")];
        let answered = replica.http.send("POST", "/a/mcp", &headers, vec![b' '; 5 << 20]).await;
        statuses.push((answered.status.as_u16(), left(&answered).is_some()));
    }
    assert_eq!(statuses, [vec![(413, true); 5], vec![(429, true)]].concat(), "length");
    let (_, registry) = replica.key("a", &["registry"]).await;
    assert_eq!(lists(&replica, "a", &registry, 6).await, [403, 403, 403, 403, 403, 429], "scope");
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let headers = [("x-agent-api-key", key.as_str()), ("content-type", "text/plain")];
        let answered = replica.http.send("POST", "/a/mcp", &headers, "{}").await;
        statuses.push((answered.status.as_u16(), left(&answered).is_some()));
    }
    assert_eq!(statuses, [vec![(415, true); 5], vec![(429, true)]].concat(), "content type");
    let (_, disabled) = replica.key("a", &["mcp"]).await;
    assert_eq!(replica.admin("PATCH", "/agents/a", Some(json!({"enabled": false}))).await.status, 200);
    assert_eq!(lists(&replica, "a", &disabled, 6).await, [403, 403, 403, 403, 403, 429], "disabled");
}

#[tokio::test]
async fn unsupported_http_method_is_charged_to_its_address() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .start()
        .await;
    let key = replica.acme("a").await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(replica.http.send("PUT", "/a/mcp", &[], "").await.status.as_u16());
    }
    assert_eq!(statuses, [405, 405, 405, 405, 405, 429]);
    assert_eq!(lists(&replica, "a", &key, 1).await, [200], "the address has no penalty");
}

#[tokio::test]
async fn batch_costing_more_than_the_burst_is_refused() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let member = |id| json!({"jsonrpc": "2.0", "id": id, "method": "resources/list"});
    let batch: Vec<_> = (0..6).map(member).collect();
    let refused = replica.http.post("a", &key, &json!(batch)).await;
    assert_eq!(
        (refused.status.as_u16(), &*refused.json()["error"]["data"]["code"].to_string()),
        (400, "\"invalid_request\"")
    );
    let detail = "the batch costs 6 units, the burst of this key is 5; send it in parts";
    assert_eq!(refused.json()["error"]["message"], detail);
    let answered = replica.http.post("a", &key, &json!(batch[..5])).await;
    assert_eq!(answered.json().as_array().unwrap().len(), 5, "the refused batch was not charged");
    assert_eq!(lists(&replica, "a", &key, 1).await, [429]);
}

#[tokio::test]
async fn exhausted_key_takes_nothing_from_agent_and_tenant_rates() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 6)
        .set("WAGGLE_LIMITS__AGENT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__AGENT_BURST", 8)
        .set("WAGGLE_LIMITS__TENANT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__TENANT_BURST", 9)
        .start()
        .await;
    let one = replica.acme("a").await;
    let (_, two) = replica.key("a", &["mcp"]).await;
    replica.agent("acme", "b").await;
    let (_, other) = replica.key("b", &["mcp"]).await;
    let scope = async |agent: &str, key: &str| {
        let answer = list(&replica, agent, key).await;
        answer.json()["error"]["data"]["scope"].as_str().map(str::to_owned)
    };
    for _ in 0..6 {
        assert_eq!(scope("a", &one).await, None);
    }
    for _ in 0..20 {
        assert_eq!(scope("a", &one).await.as_deref(), Some("key"));
    }
    assert_eq!([scope("a", &two).await, scope("a", &two).await], [None, None]);
    assert_eq!(scope("a", &two).await.as_deref(), Some("agent"));
    assert_eq!(scope("b", &other).await, None);
    assert_eq!(scope("b", &other).await.as_deref(), Some("tenant"));
}
