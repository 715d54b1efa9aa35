//! What requests to hooks cost, and who pays for it: their senders need no credential.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Keys;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::wait::eventually;
use crate::support::webhook::Message;

/// A gateway with these settings behind a proxy, and the agent `a` of `acme`.
async fn behind_proxy(settings: &[(&str, &str)]) -> (Keys, Database, Replica) {
    let (keys, database) = (Keys::new(), database().await);
    let builder = keys.replica(&database).set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1");
    let set = |builder: Builder, (name, value): &(&str, &str)| builder.set(name, value);
    let replica = settings.iter().fold(builder, set).start().await;
    replica.acme("a").await;
    (keys, database, replica)
}

/// Creates a hook of the agent `a` that names so many resources; returns its id and its secret.
async fn hook(replica: &Replica, uris: usize) -> (String, String) {
    let template = "/agents/a/templates?uriTemplate=x%3A%7Bv%7D";
    let body = json!({"name": "t", "template": "text"});
    assert!(replica.admin("PUT", template, Some(body)).await.status.is_success());
    let uris: Vec<_> = (0..uris).map(|nth| format!("x:{nth}")).collect();
    let made = replica.admin("POST", "/agents/a/hooks", Some(json!({"uris": uris}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

/// Sends distinct signed messages, each from an address of its own, until one is refused; returns how many were accepted in
/// which time, and the refusal.
async fn accepted(replica: &Replica, (id, secret): &(String, String)) -> (u32, Duration, Answer) {
    let began = Instant::now();
    for nth in 0..200 {
        let (message, from) = (format!("message-{nth}"), format!("192.0.2.{nth}"));
        let answer = Message::new(&message).send_from(replica, id, secret, &from).await;
        if answer.status != 202 {
            return (nth, began.elapsed(), answer);
        }
    }
    panic!("all are accepted");
}

#[tokio::test]
async fn signed_requests_from_any_address_are_charged_to_the_tenant() {
    let limits = [
        ("WAGGLE_LIMITS__TENANT_PER_SECOND", "1"),
        ("WAGGLE_LIMITS__TENANT_BURST", "6"),
        ("WAGGLE_LIMITS__ADDRESS_PER_SECOND", "1000"),
    ];
    let (_keys, _database, replica) = behind_proxy(&limits).await;
    let (count, took, last) = accepted(&replica, &hook(&replica, 1).await).await;
    assert!(count >= 6 && f64::from(count) <= 7.0 + took.as_secs_f64(), "{count} in {took:?}");
    let detail = last.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.starts_with("rate limit exceeded: 1 request/s for this tenant"), "{}", last.text());
    let status = ["ratelimit-policy", "ratelimit"].map(|name| last.header(name));
    assert_eq!(status, [Some(r#""tenant";q=6;w=6"#), Some(r#""tenant";r=0;t=1"#)]);
    // One for each ten resources.
    let (count, took, last) = accepted(&replica, &hook(&replica, 60).await).await;
    assert!(f64::from(count) <= 1.0 + took.as_secs_f64() / 6.0, "{count} in {took:?}");
    assert_eq!(last.status, 429);
    // Messages use up nothing of what the tenant's own keys may call.
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let own = replica.http.admin(owner["key"].as_str().unwrap(), "GET", "/agents/a", None).await;
    assert_eq!(own.status, 200, "{}", own.text());
}

#[tokio::test]
async fn address_with_a_penalty_sends_no_messages() {
    let settings = [
        ("WAGGLE_LIMITS__ADDRESS_PER_SECOND", "1"),
        ("WAGGLE_LIMITS__ADDRESS_BURST", "5"),
        ("WAGGLE_LIMITS__ADDRESS_PENALTY_SECONDS", "600"),
        ("WAGGLE_COSTS__ADMIN_WRITE", "0"),
    ];
    let (_keys, _database, replica) = behind_proxy(&settings).await;
    let (id, secret) = hook(&replica, 1).await;
    let forged = async || {
        let message = Message { signed: Some("[]"), ..Message::new("forged") };
        message.send_from(&replica, &id, &secret, "192.0.2.1").await.status == 429
    };
    eventually("the address has a penalty", forged).await;
    let refused = Message::new("message").send_from(&replica, &id, &secret, "192.0.2.1").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let other = Message::new("message").send_from(&replica, &id, &secret, "192.0.2.2").await;
    assert_eq!(other.status, 202, "{}", other.text());
}

#[tokio::test]
async fn unsigned_request_is_refused_before_its_body_arrives() {
    let (_keys, _database, replica) = behind_proxy(&[]).await;
    let (id, _) = hook(&replica, 1).await;
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    let head = format!("POST /hooks/{id} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65536\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut answer)).await;
    read.expect("it is not waited for").unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), "HTTP/1.1 401");
}

/// A connection on which a forged request to a hook was begun from an address: its body does not arrive.
async fn begin(replica: &Replica, id: &str, from: &str) -> TcpStream {
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    let (at, signature) = (OffsetDateTime::now_utc().unix_timestamp(), STANDARD.encode([0; 32]));
    let head = format!(
        "POST /hooks/{id} HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {from}\r\nwebhook-id: m\r\n\
         webhook-timestamp: {at}\r\nwebhook-signature: v1,{signature}\r\ncontent-length: 65536\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn forged_bodies_reserve_the_memory_of_their_address_and_of_hooks() {
    const MIB: usize = 1 << 20;
    let bytes = |mib: usize| (mib * MIB).to_string();
    let (one, four, six, sixty) = (bytes(1), bytes(4), bytes(6), bytes(60));
    let settings = [
        ("WAGGLE_SERVER__BODY_BYTES_PER_SECOND", "0"),
        ("WAGGLE_LIMITS__MANIFEST_BYTES", four.as_str()),
        ("WAGGLE_LIMITS__CONTENT_BYTES", &one),
        ("WAGGLE_LIMITS__SKILL_BYTES", &one),
        ("WAGGLE_LIMITS__UPLOAD_BYTES_PER_KEY", &four),
        ("WAGGLE_LIMITS__UPLOAD_BYTES_PER_TENANT", &six),
        ("WAGGLE_LIMITS__UPLOAD_BYTES", &sixty),
    ];
    let (_keys, _database, replica) = behind_proxy(&settings).await;
    let (id, _) = hook(&replica, 1).await;
    let (mut unfinished, mut expected) = (Vec::new(), 0.0);
    // An address may reserve 4 MiB, and all requests to hooks 6.
    for (from, begun) in [("192.0.2.1", 64), ("198.51.100.1", 32)] {
        for _ in 0..begun {
            unfinished.push(begin(&replica, &id, from).await);
        }
        expected += f64::from(begun) * 65_536.0;
        eventually("all are reserved", async || replica.metric("waggle_upload_bytes").await == expected)
            .await;
        let mut refused = begin(&replica, &id, from).await;
        let mut answer = vec![0; 12];
        let read = tokio::time::timeout(Duration::from_secs(5), refused.read_exact(&mut answer)).await;
        read.expect("it is refused at once").unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), "HTTP/1.1 503");
    }
}

#[tokio::test]
async fn look_ups_of_hooks_delay_no_other_loads() {
    let (keys, database, replica) = behind_proxy(&[]).await;
    replica.tenant("bee").await;
    replica.agent("bee", "b").await;
    let (_, key) = replica.key("b", &["mcp"]).await;
    replica.put("b", "y:1", "text").await;
    let (id, secret) = hook(&replica, 1).await;
    let other = keys.replica(&database).set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1").start().await;
    let mut lock = database.connect().await;
    for statement in ["begin", "lock table hooks in access exclusive mode"] {
        sqlx::query(statement).execute(&mut lock).await.unwrap();
    }
    let forge = async |nth: usize| {
        let message = Message { signed: Some("[]"), ..Message::new("forged") };
        message.send_from(&other, &id, &secret, &format!("192.0.2.{nth}")).await.status
    };
    let forged = futures_util::future::join_all((0..100).map(forge));
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let read = async {
        eventually("look-ups wait", async || database.number(waiting).await > 0).await;
        let cold = other.http.text("b", &key, "y:1").await;
        assert_eq!(cold.as_deref(), Some("text"), "a first read of another tenant is answered meanwhile");
        assert!(database.number(waiting).await <= 2, "connections");
        sqlx::query("rollback").execute(&mut lock).await.unwrap();
    };
    let (statuses, ()) = futures_util::join!(forged, read);
    assert!(statuses.iter().all(|status| [401, 503].contains(&status.as_u16())), "{statuses:?}");
}
