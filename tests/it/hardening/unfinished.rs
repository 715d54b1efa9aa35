//! Requests with unfinished bodies: the permits that they take, and that other requests are served.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::frames::{FrameClient, HEADERS, unfinished_post};
use crate::support::http::Client;
use crate::support::wait::eventually;

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const WAIT: Duration = Duration::from_secs(30);

fn ping() -> Value {
    serde_json::from_str(PING).unwrap()
}

/// A connection from `127.0.0.n`.
async fn connect_from(n: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, n], 0))).unwrap();
    socket.connect(address).await.unwrap()
}

/// A well-formed key that was never issued.
fn unknown_key() -> String {
    SecretKey::generate(KeyKind::Agent, &mut rand::rng()).reveal().to_owned()
}

/// The head of a request with a body of this length, and the first byte of the body.
fn unfinished(path: &str, credential: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{credential}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{{"
    )
}

/// The next bytes of an answer; empty if the connection has ended.
async fn answer(stream: &mut TcpStream) -> String {
    let mut received = vec![0; 8_192];
    let read = tokio::time::timeout(WAIT, stream.read(&mut received)).await.unwrap().unwrap_or(0);
    String::from_utf8_lossy(&received[..read]).into_owned()
}

/// A gateway that processes four requests at once and reads the bodies of two refused ones.
fn with_low_limits(database: &Database) -> Builder {
    Builder::new(database)
        .set("WAGGLE_SERVER__BODY_BYTES_PER_SECOND", 0)
        .set("WAGGLE_LIMITS__CONCURRENT_REQUESTS", 4)
        .set("WAGGLE_LIMITS__REFUSED_BODIES", 2)
}

/// Sends unfinished requests over HTTP/1.1, the next one after each answer: without a credential, and with an unknown key.
async fn attack_http1(n: u8, address: SocketAddr) {
    loop {
        for credential in ["X-Unknown: 1".to_owned(), format!("X-Agent-API-Key: {}", unknown_key())] {
            let mut stream = connect_from(n, address).await;
            if stream.write_all(unfinished("/a/mcp", &credential, 99).as_bytes()).await.is_ok() {
                let _ = stream.read(&mut [0; 1_024]).await;
            }
        }
    }
}

/// Sends the same requests over HTTP/2, in fifty concurrent streams.
async fn attack_http2(n: u8, address: SocketAddr) {
    loop {
        let mut attacker = FrameClient::begin(connect_from(n, address).await).await;
        for nth in 0..50 {
            let key = unknown_key();
            let headers = [("x-agent-api-key", &*key)];
            let headers = if nth % 2 == 0 { &headers[..] } else { &[] };
            if attacker.send(&unfinished_post(2 * nth + 1, "/a/mcp", headers)).await.is_err() {
                break;
            }
        }
        for _ in 0..50 {
            if attacker.next(HEADERS).await.is_none() {
                break;
            }
        }
    }
}

async fn assert_calls_succeed_during(replica: &Replica, key: &str, mut attackers: JoinSet<()>) {
    let caller = Client::new(replica.running.address);
    for nth in 0..100 {
        let answered = caller.post("a", key, &ping()).await;
        assert_eq!(answered.status, 200, "request {nth}: {}", answered.text());
        // A pause for requests of the attackers.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(attackers.try_join_next().is_none(), "an attacker has ended");
}

#[tokio::test]
async fn unfinished_requests_without_credential_occupy_no_permits() {
    let database = database().await;
    let replica = with_low_limits(&database).start().await;
    let key = replica.acme("a").await;
    let address = replica.running.address;
    let mut attackers = JoinSet::new();
    for nth in 0..64 {
        attackers.spawn(attack_http1(2 + nth % 8, address));
    }
    assert_calls_succeed_during(&replica, &key, attackers).await;
}

#[tokio::test]
async fn unfinished_http_2_requests_occupy_no_permits() {
    let database = database().await;
    let replica = with_low_limits(&database).start().await;
    let key = replica.acme("a").await;
    let address = replica.running.address;
    let mut attackers = JoinSet::new();
    for nth in 0..8 {
        attackers.spawn(attack_http2(2 + nth, address));
    }
    assert_calls_succeed_during(&replica, &key, attackers).await;
}

#[tokio::test]
async fn unfinished_bodies_of_a_valid_key_occupy_no_permits() {
    let database = database().await;
    let replica = with_low_limits(&database).set("WAGGLE_LIMITS__CONCURRENT_PER_AGENT", 1).start().await;
    let first = replica.acme("a").await;
    let (_, second) = replica.key("a", &["mcp", "registry"]).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(replica.http.begin("a", &first, 99).await);
        let (put, bearer) = ("PUT /admin/v1/agents/a/prompts/p", format!("Authorization: Bearer {first}"));
        held.push(replica.http.begin_request(put, &bearer, 99).await);
    }
    for nth in 0..20 {
        let answered = replica.http.post("a", &second, &ping()).await;
        assert_eq!(answered.status, 200, "request {nth}: {}", answered.text());
        assert_eq!(replica.http.admin(&second, "GET", "/agents/a/prompts", None).await.status, 200);
    }
    for stream in &mut held {
        stream.write_all(" ".repeat(98).as_bytes()).await.unwrap();
        let received = answer(stream).await;
        assert!(received.starts_with("HTTP/1.1 400 "), "a finished body is answered: {received}");
    }
}

#[tokio::test]
async fn key_revoked_while_a_body_arrives_is_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (id, key) = replica.key("a", &["mcp", "registry"]).await;
    let mut reading = replica.http.begin("a", &key, PING.len()).await;
    let prompt = r#"{"messages":[]}"#;
    let mut publishing = TcpStream::connect(replica.running.address).await.unwrap();
    let head =
        unfinished("/admin/v1/agents/a/prompts/p", &format!("Authorization: Bearer {key}"), prompt.len());
    let head = head.replacen("POST", "PUT", 1).replacen("\r\n\r\n{", "\r\nExpect: 100-continue\r\n\r\n", 1);
    publishing.write_all(head.as_bytes()).await.unwrap();
    assert!(answer(&mut publishing).await.starts_with("HTTP/1.1 100 "), "the credential is verified");
    assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    reading.write_all(&PING.as_bytes()[1..]).await.unwrap();
    publishing.write_all(prompt.as_bytes()).await.unwrap();
    let received = answer(&mut reading).await;
    assert!(received.starts_with("HTTP/1.1 401 ") && received.contains(r#""id":7"#), "{received}");
    let received = answer(&mut publishing).await;
    assert!(received.starts_with("HTTP/1.1 401 "), "{received}");
}

#[tokio::test]
async fn requests_beyond_the_concurrency_of_a_key_are_refused() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__CONCURRENT_PER_KEY", 2).start().await;
    let key = replica.acme("a").await;
    let (_, other) = replica.key("a", &["mcp"]).await;
    let mut held = vec![replica.http.begin("a", &key, 99).await, replica.http.begin("a", &key, 99).await];
    let refused = replica.http.post("a", &key, &ping()).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (503, &json!(7)));
    assert_eq!(replica.http.post("a", &other, &ping()).await.status, 200);
    held.pop();
    let is_free = async || replica.http.post("a", &key, &ping()).await.status == 200;
    eventually("the permit is released", is_free).await;
}

#[tokio::test]
async fn requests_beyond_the_concurrency_of_an_agent_are_refused() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__CONCURRENT_PER_AGENT", 1)
        .fault_injector(faults.clone())
        .start()
        .await;
    let key = replica.acme("a").await;
    let (_, other) = replica.key("a", &["mcp"]).await;
    assert_eq!(replica.http.post("a", &other, &ping()).await.status, 200);
    assert_eq!(replica.http.post("a", &key, &ping()).await.status, 200);
    // A ping loads nothing; the first list loads the catalog.
    let held = faults.hold(FailPoint::CacheFillRead);
    let (http, working) = (replica.http.clone(), key.clone());
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    let working = tokio::spawn(async move { http.post("a", &working, &list).await.status });
    held.meanwhile(async {
        let refused = replica.http.post("a", &other, &ping()).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (503, &json!(7)));
    })
    .await;
    assert_eq!(working.await.unwrap(), 200);
}

#[tokio::test]
async fn exhausted_caller_is_refused_before_its_body_is_read() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 5)
        .set("WAGGLE_COSTS__OTHER", 5)
        .set("WAGGLE_COSTS__LIST", 0)
        .start()
        .await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let limits = json!({"limits": {"perSecond": 0}});
    let unlimited = replica.admin("POST", "/agents/b/keys", Some(limits)).await.json();
    let other = unlimited["key"].as_str().unwrap().to_owned();
    let quota = Some(json!({"limits": {"callsPerDay": 1}}));
    assert_eq!(replica.admin("PATCH", "/agents/b", quota).await.status, 200);
    for (agent, key, code) in [("a", &key, "rate_limited"), ("b", &other, "quota_exceeded")] {
        assert_eq!(replica.http.post(agent, key, &ping()).await.status, 200);
        // After the first refusal the quota counts as exhausted for a second.
        let refused = replica.http.post(agent, key, &ping()).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (429, &json!(7)));
        let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
        let credential = format!("X-Agent-API-Key: {key}");
        let head = unfinished(&format!("/{agent}/mcp"), &credential, 100_000);
        stream.write_all(head.as_bytes()).await.unwrap();
        let received = answer(&mut stream).await;
        assert!(received.starts_with("HTTP/1.1 429 "), "{received}");
        assert!(received.contains(code), "{received}");
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(replica.http.post("a", &key, &list).await.status, 200, "what costs nothing is answered");
}

#[tokio::test]
async fn refused_request_id_is_read_from_a_short_body_only() {
    let (_database, replica) = gateway().await;
    for (length, id) in [(64 * 1024, json!(7)), (64 * 1024 + 1, json!(null))] {
        let body = format!("{PING}{}", " ".repeat(length - PING.len()));
        let headers = [("x-agent-api-key", "bak_none"), ("content-type", "application/json")];
        let refused = replica.http.send("POST", "/a/mcp", &headers, body).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["id"]), (401, &id), "{length} bytes");
    }
}

#[tokio::test]
async fn refused_request_id_is_read_while_a_permit_is_free() {
    let database = database().await;
    for (permits, id) in [(8, json!(7)), (0, json!(null))] {
        let replica = Builder::new(&database)
            .set("WAGGLE_LIMITS__REFUSED_BODIES", permits)
            .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
            .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
            .start()
            .await;
        let mut refused = replica.http.post("a", "bak_none", &ping()).await;
        let mut times = 0;
        while refused.status == 401 {
            assert_eq!(refused.json()["id"], id, "{permits} permits");
            times += 1;
            assert!(times < 100, "the address is not barred");
            refused = replica.http.post("a", "bak_none", &ping()).await;
        }
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["id"]),
            (429, &json!(null)),
            "{permits} permits"
        );
        replica.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_whose_client_disconnects_is_completed_and_recorded() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    let read =
        json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "x:1"}}).to_string();
    let head = format!(
        "POST /a/mcp HTTP/1.1\r\nHost: localhost\r\nX-Agent-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        read.len()
    );
    let mut locked = database.connect().await;
    for statement in ["begin", "lock table contents in access exclusive mode"] {
        locked.execute(statement).await.unwrap();
    }
    let mut client = connect_from(1, replica.running.address).await;
    client.write_all((head + &read).as_bytes()).await.unwrap();
    let waiting = "select count(*) from pg_locks where not granted and database = (select oid from pg_database where datname = current_database())";
    eventually("the read waits for its contents", async || database.number(waiting).await > 0).await;
    drop(client);
    locked.execute("rollback").await.unwrap();
    let recorded = "select count(*) from audit_log where method = 'resources/read' and outcome = 'ok'";
    eventually("the read is in the audit log", async || database.number(recorded).await == 1).await;
}
