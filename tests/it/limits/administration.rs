//! Rates of the administration API.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{five_for_a_key, left, lists};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;

async fn get(replica: &Replica, key: &str, path: &str) -> u16 {
    replica.http.admin(key, "GET", path, None).await.status.as_u16()
}

#[tokio::test]
async fn administration_rate_is_per_key_and_not_for_the_operator() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    let first = replica.http.admin(&key, "GET", "/agents/a/resources", None).await;
    assert_eq!((first.status.as_u16(), first.header("ratelimit-policy")), (200, Some("\"key\";q=5;w=5")));
    assert_eq!(left(&first).as_deref(), Some("\"key\";r=4"));
    for _ in 0..4 {
        assert_eq!(get(&replica, &key, "/agents/a/resources").await, 200);
    }
    let refused = replica.http.admin(&key, "GET", "/agents/a/resources", None).await;
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!((refused.header("retry-after"), left(&refused).as_deref()), (Some("1"), Some("\"key\";r=0")));
    let expected = json!({
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "rate limit exceeded: 1 request/s for this key; retry in 1 s",
        "code": "rate_limited",
    });
    assert_eq!(refused.json(), expected);
    assert_eq!(
        lists(&replica, "a", &key, 6).await,
        [200, 200, 200, 200, 200, 429],
        "reads have their own rate"
    );
    for _ in 0..10 {
        let answered = replica.admin("GET", "/agents/a", None).await;
        assert_eq!((answered.status.as_u16(), left(&answered)), (200, None));
    }
}

#[tokio::test]
async fn tenant_keys_share_an_administration_rate_by_cost() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__TENANT_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__TENANT_BURST", 12)
        .set("WAGGLE_COSTS__ADMIN_WRITE", 5)
        .start()
        .await;
    let first = replica.acme("a").await;
    let (_, second) = replica.key("a", &["registry"]).await;
    let put = async |key: &str| {
        let prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "t"}}]});
        replica.http.admin(key, "PUT", "/agents/a/prompts/p", Some(prompt)).await
    };
    let written = put(&first).await;
    assert_eq!((written.status.as_u16(), left(&written).as_deref()), (201, Some("\"tenant\";r=7")));
    assert_eq!(put(&second).await.status, 200);
    let refused = put(&first).await;
    assert_eq!((refused.status.as_u16(), left(&refused).as_deref()), (429, Some("\"tenant\";r=0")));
    assert_eq!(get(&replica, &first, "/agents/a/prompts").await, 200, "a read costs less");
}

#[tokio::test]
async fn anonymous_administration_calls_are_charged_to_the_address() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .start()
        .await;
    replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    let mut statuses = Vec::new();
    for path in ["/admin/openapi.json", "/admin/docs/", "/admin/v1/no/such", "/admin/v1/agents"] {
        // The last path has a GET, and no DELETE.
        let method = if path.ends_with("agents") { "DELETE" } else { "GET" };
        statuses.push(replica.http.send(method, path, &[], "").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 404, 405]);
    assert_eq!(replica.http.get("/admin/openapi.json").await.status, 200);
    let refused = replica.http.get("/admin/openapi.json").await;
    assert_eq!((refused.status.as_u16(), left(&refused).as_deref()), (429, Some("\"address\";r=0")));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    let read = replica.http.send("POST", "/a/mcp", &[("content-type", "application/json")], list).await;
    assert_eq!(read.status, 200, "reads have their own rate");
}

#[tokio::test]
async fn exhausted_administration_key_is_refused_before_the_body() {
    let database = database().await;
    let replica = five_for_a_key(&database).start().await;
    let key = replica.acme("a").await;
    for _ in 0..5 {
        assert_eq!(get(&replica, &key, "/agents/a/resources").await, 200);
    }
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    let head = format!(
        "PUT /admin/v1/agents/a/manifest HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = [0; 12];
    tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut received)).await.unwrap().unwrap();
    assert_eq!(&received, b"HTTP/1.1 429");
}

#[test]
fn every_operation_documents_status_429() {
    let document: Value = serde_json::from_str(waggle::app::openapi()).unwrap();
    let operations: Vec<_> =
        document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap()).collect();
    assert!(operations.len() > 20);
    for (method, operation) in operations {
        assert!(operation["responses"].get("429").is_some(), "{method} {}", operation["operationId"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_one_tenant_occupy_a_part_of_the_pool() {
    // As many as the pool has connections, and more.
    const READS: usize = 24;
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    replica.acme("a").await;
    let (_, auditor) = replica.key("a", &["audit"]).await;
    replica.tenant("bee").await;
    replica.agent("bee", "b").await;
    let (_, other) = replica.key("b", &["registry"]).await;
    let mut blocking = database.connect().await;
    blocking.execute("begin; lock table audit_log in access exclusive mode").await.unwrap();
    let mut reads = JoinSet::new();
    for nth in 0..READS {
        let (http, key) = (replica.http.clone(), auditor.clone());
        let path = format!("/audit?request=none{nth}");
        reads.spawn(async move { http.admin(&key, "GET", &path, None).await.status.as_u16() });
    }
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock' and query ilike 'select%audit_log%'";
    eventually("two reads are blocked", async || database.number(waiting).await >= 2).await;
    for path in ["/agents/b/prompts", "/agents/b/resources"] {
        assert_eq!(get(&replica, &other, path).await, 200);
    }
    assert_eq!(
        get(&replica, &auditor, "/audit?agent=unknown").await,
        404,
        "what precedes a read does not wait"
    );
    assert_eq!(database.number(waiting).await, 2);
    blocking.execute("rollback").await.unwrap();
    assert_eq!(reads.join_all().await, [200; READS]);
}
