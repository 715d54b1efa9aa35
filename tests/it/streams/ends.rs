//! How streams end, and within what time.

use std::time::{Duration, Instant};

use serde_json::json;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database};
use crate::support::events::{Events, Session, listen};
use crate::support::faults::{Fault, FaultScript};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// Within a second of the cause.
const SOON: Duration = Duration::from_secs(1);

struct Streams {
    modern: Events,
    legacy: Events,
    session: Session,
}

async fn streams(replica: &Replica, key: &str) -> Streams {
    let mut modern = listen(replica, "a", key, json!("l"), json!({"promptsListChanged": true})).await;
    modern.next().await.unwrap();
    let session = Session::open(replica, "a", key, "2025-06-18").await;
    session.done(replica, "logging/setLevel", json!({"level": "notice"})).await;
    let legacy = session.stream(replica, None).await;
    Streams { modern, legacy, session }
}

impl Streams {
    /// Both streams state why they end, in time. Returns how many comments each had.
    async fn end(mut self, since: Instant, why: &str) -> [usize; 2] {
        let last = self.modern.next().await.unwrap().json();
        let meta = &last["result"]["_meta"];
        assert_eq!(
            (&last["id"], &last["result"]["resultType"], &meta["io.modelcontextprotocol/subscriptionId"]),
            (&json!("l"), &json!("complete"), &json!("l"))
        );
        assert_eq!(meta["io.modelcontextprotocol/serverInfo"]["name"], "a");
        assert_eq!(self.modern.next().await, None);
        assert_eq!(self.legacy.next_summary().await, format!("log {why}"));
        let retry = self.legacy.next().await.unwrap();
        assert_eq!((retry.id, retry.data), (None, None));
        assert!(matches!(retry.retry, Some(500..=3_000)), "{:?}", retry.retry);
        assert_eq!(self.legacy.next().await, None);
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        [self.modern.comments(), self.legacy.comments()]
    }
}

/// Two replicas: a change on the first ends the streams of the second.
async fn two() -> (Database, Replica, Replica, String) {
    let database = database().await;
    let (one, two) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let key = one.acme("a").await;
    (database, one, two, key)
}

#[tokio::test]
async fn disabling_or_deleting_an_agent_ends_remote_streams() {
    let (_database, one, two, key) = two().await;
    let open = streams(&two, &key).await;
    let since = Instant::now();
    assert_eq!(one.admin("PATCH", "/agents/a", Some(json!({"enabled": false}))).await.status, 200);
    open.end(since, "not_allowed").await;

    assert_eq!(one.admin("PATCH", "/agents/a", Some(json!({"enabled": true}))).await.status, 200);
    let is_enabled = async || !two.http.call("a", &key, "ping", json!({})).await["error"].is_object();
    eventually("the agent is enabled elsewhere", is_enabled).await;
    let open = streams(&two, &key).await;
    let since = Instant::now();
    assert_eq!(one.admin("DELETE", "/agents/a", None).await.status, 204);
    open.end(since, "not_allowed").await;
}

#[tokio::test]
async fn revoked_or_expired_key_ends_its_streams() {
    let (_database, one, two, _) = two().await;
    let (id, key) = one.key("a", &["mcp"]).await;
    let open = streams(&two, &key).await;
    let since = Instant::now();
    assert_eq!(one.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    open.end(since, "not_allowed").await;

    let end = time::OffsetDateTime::now_utc() + Duration::from_secs(2);
    let expires = end.format(&time::format_description::well_known::Rfc3339).unwrap();
    let made = one.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": expires}))).await.json();
    let mut open = streams(&two, made["key"].as_str().unwrap()).await;
    assert_eq!(open.legacy.next_summary().await, "log key_expires");
    let left: Duration = (end - time::OffsetDateTime::now_utc()).try_into().unwrap();
    let since = Instant::now() + left;
    open.end(since, "not_allowed").await;
}

#[tokio::test]
async fn deleted_session_ends_its_stream_on_another_replica() {
    let (_database, one, two, key) = two().await;
    let Streams { mut legacy, session, modern: _modern } = streams(&two, &key).await;
    let since = Instant::now();
    assert_eq!(session.send(&one, "DELETE", &[]).await.status, 204);
    assert_eq!(legacy.next_summary().await, "log session_ended");
    assert!(legacy.next().await.unwrap().retry.is_some());
    assert_eq!(legacy.next().await, None);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[tokio::test]
async fn shutdown_ends_streams_first() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let open = streams(&replica, &key).await;
    let since = Instant::now();
    tokio::join!(replica.running.stop(), open.end(since, "shutdown"));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_streams_that_wait_for_a_sweep() {
    let database = database().await;
    let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
    let replica = Builder::new(&database)
        .set("WAGGLE_SESSIONS__KEEP_ALIVE_SECONDS", 1)
        .fault_injector(faults.clone())
        .store(|store| store.listen = proxy.options.clone())
        .start()
        .await;
    let key = replica.acme("a").await;
    let mut open = streams(&replica, &key).await;
    proxy.fail(Fault::Refused);
    eventually("LISTEN is lost", async || replica.http.get("/readyz").await.text().contains("listen")).await;
    let address = replica.running.address;
    let (ended, stopped) = tokio::sync::oneshot::channel();
    let stopping = async {
        // Both streams begin the check of their keep-alive, and wait. Its comment is sent with what it finds.
        let checking = Duration::from_millis(1_200);
        tokio::join!(open.modern.drain(checking), open.legacy.drain(checking));
        let comments = [open.modern.comments(), open.legacy.comments()];
        tokio::spawn(async move {
            replica.running.stop().await;
            ended.send(())
        });
        eventually("it stops", async || tokio::net::TcpStream::connect(address).await.is_err()).await;
        comments
    };
    let before = faults.hold(FailPoint::Sweep).meanwhile(stopping).await;
    let since = Instant::now();
    let comments = open.end(since, "shutdown").await;
    assert_eq!(comments, before.map(|before| before + 1), "they end with that check, not with the next");
    stopped.await.unwrap();
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
}

#[tokio::test]
async fn quiet_stream_sends_comments_and_keeps_its_session() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__IDLE_SECONDS", 4).start().await;
    let key = replica.acme("a").await;
    let kept = Session::open(&replica, "a", &key, "2025-06-18").await;
    let idle = Session::open(&replica, "a", &key, "2025-06-18").await;
    let mut stream = kept.stream(&replica, None).await;
    assert_eq!(stream.drain(Duration::from_secs(6)).await, Vec::<String>::new());
    assert_eq!(idle.call(&replica, "ping", json!({})).await.status, 404);
    assert_eq!(kept.call(&replica, "ping", json!({})).await.status, 200);
    assert!(stream.comments() >= 4, "{}", stream.comments());
}
