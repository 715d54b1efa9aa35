//! A database that is restored to an older state under running replicas.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;
use waggle::model::scope::{Revision, Scope};
use waggle::model::system::FailPoint;
use waggle::store::Store;
use waggle::store::notify::FeedMessage;

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database, store_options};
use crate::support::events::{Events, Session, listen};
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

/// `access.stale_seconds` here, the time for which state of the lost history may be used.
const STALE: Duration = Duration::from_secs(5);

/// Far longer than a sweep takes to find a change.
const WITHIN: Duration = Duration::from_secs(30);

const TEXT: &str = "x:1";

/// Two replicas with an agent, and its key.
struct Pair {
    database: Database,
    one: Replica,
    two: Replica,
    key: String,
}

impl Pair {
    async fn start() -> Self {
        let database = database().await;
        let replica = || Builder::new(&database).set("WAGGLE_ACCESS__STALE_SECONDS", STALE.as_secs()).start();
        let (one, two) = tokio::join!(replica(), replica());
        let key = one.acme("a").await;
        one.put("a", TEXT, "saved").await;
        let pair = Self { database, one, two, key };
        pair.both_read(Some("saved")).await;
        pair
    }

    async fn both_read(&self, text: Option<&str>) {
        for replica in [&self.one, &self.two] {
            let read = async || replica.http.text("a", &self.key, TEXT).await.as_deref() == text;
            eventually(&format!("both read {text:?}"), read).await;
        }
    }

    /// Waits until both replicas are fully ready.
    async fn is_whole(&self) {
        for replica in [&self.one, &self.two] {
            let ready = async || replica.http.get("/readyz").await.text() == r#"{"status":"ready"}"#;
            eventually("it is ready", ready).await;
        }
    }

    /// Repeats a write until the database can be reached.
    async fn write(&self, replica: &Replica, text: &str) {
        let body = json!({"name": "a name", "contents": [{"text": text}]});
        let path = resource("a", TEXT);
        let written = async || replica.admin("PUT", &path, Some(body.clone())).await.status.is_success();
        eventually("it is written", written).await;
    }

    /// Makes the changes that will be lost: some revisions, and a key, which is returned with its id.
    async fn write_what_is_lost(&self) -> String {
        for n in 0..5 {
            self.write(&self.one, &format!("lost {n}")).await;
        }
        let (_, key) = self.two.key("a", &["mcp"]).await;
        self.both_read(Some("lost 4")).await;
        for replica in [&self.one, &self.two] {
            assert_eq!(replica.http.text("a", &key, TEXT).await.as_deref(), Some("lost 4"));
        }
        key
    }

    /// Both replicas answer from the restored history: lost objects are gone, and new writes and revocations apply.
    async fn check(&self, saved: &str) {
        self.both_read(Some(saved)).await;
        for (number, writer) in [&self.one, &self.two, &self.one].into_iter().enumerate() {
            let text = format!("new {number}");
            self.write(writer, &text).await;
            self.both_read(Some(&text)).await;
        }
        for revoker in [&self.one, &self.two] {
            let (id, key) = self.one.key("a", &["mcp"]).await;
            for replica in [&self.one, &self.two] {
                assert!(replica.http.text("a", &key, TEXT).await.is_some());
            }
            let revoked = revoker.admin("DELETE", &format!("/keys/{id}"), None).await;
            assert_eq!(revoked.status, StatusCode::NO_CONTENT);
            let revoked = Instant::now();
            for replica in [&self.one, &self.two] {
                let refused = async || status(replica, &key).await == StatusCode::UNAUTHORIZED;
                eventually("a revoked key is refused", refused).await;
            }
            assert!(revoked.elapsed() < WITHIN, "refused by both after {:?}", revoked.elapsed());
        }
    }
}

async fn status(replica: &Replica, key: &str) -> StatusCode {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    replica.http.post("a", key, &list).await.status
}

impl Database {
    fn name(&self) -> &str {
        self.options.get_database().unwrap()
    }

    /// Ends all connections and refuses new ones while `work` runs from another database.
    async fn alone(&self, work: &[String]) {
        let other = Self { options: self.options.clone().database("postgres") };
        let name = self.name();
        other.execute(&format!("alter database {name} allow_connections false")).await;
        for statement in work {
            let end =
                format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'");
            other.execute(&end).await;
            other.execute(statement).await;
        }
        other.execute(&format!("alter database {name} allow_connections true")).await;
    }

    /// Saves a copy.
    async fn save(&self) {
        let name = self.name();
        self.alone(&[format!("create database {name}_saved template {name}")]).await;
    }

    /// Replaces the database by the copy.
    async fn restore(&self) {
        let name = self.name();
        let drop = format!("drop database {name} with (force)");
        self.alone(&[drop, format!("alter database {name}_saved rename to {name}")]).await;
    }
}

async fn next_events(stream: &mut Events, expected: &[&str]) {
    let mut missing: Vec<_> = expected.to_vec();
    while !missing.is_empty() {
        let received = stream.next_summary().await;
        missing.retain(|expected| *expected != received);
    }
}

fn everything() -> Value {
    json!({
        "resourcesListChanged": true, "promptsListChanged": true, "toolsListChanged": true,
        "resourceSubscriptions": [TEXT],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_is_noticed_and_replayed_to_streams() {
    let pair = Pair::start().await;
    let session = Session::open(&pair.one, "a", &pair.key, "2025-06-18").await;
    session.subscribe(&pair.one, TEXT).await;
    pair.database.save().await;
    pair.is_whole().await;
    let lost = pair.write_what_is_lost().await;
    let mut modern = listen(&pair.two, "a", &pair.key, json!("l"), everything()).await;
    modern.next().await.unwrap();
    let mut legacy = session.stream(&pair.one, None).await;

    pair.database.restore().await;
    next_events(&mut modern, &["resources", "prompts", "tools", "updated x:1"]).await;
    next_events(&mut legacy, &["resources", "prompts", "tools", "updated x:1"]).await;
    pair.both_read(Some("saved")).await;
    for replica in [&pair.one, &pair.two] {
        let refused = async || status(replica, &lost).await == StatusCode::UNAUTHORIZED;
        eventually("a key of the lost history is refused", refused).await;
    }
    pair.is_whole().await;
    pair.write(&pair.one, "after").await;
    next_events(&mut modern, &["updated x:1"]).await;
    next_events(&mut legacy, &["updated x:1"]).await;
    pair.check("after").await;
}

/// Revisions that were lost are given again, to other changes.
#[tokio::test(flavor = "multi_thread")]
async fn position_of_a_lost_timeline_is_not_resumed() {
    let pair = Pair::start().await;
    let session = Session::open(&pair.one, "a", &pair.key, "2025-06-18").await;
    session.subscribe(&pair.one, TEXT).await;
    let mut stream = session.stream(&pair.one, None).await;
    pair.write(&pair.one, "sent").await;
    next_events(&mut stream, &["updated x:1"]).await;
    pair.database.save().await;
    pair.is_whole().await;
    pair.write_what_is_lost().await;
    let position = stream.next().await.unwrap().id.unwrap();
    drop(stream);

    pair.database.restore().await;
    pair.both_read(Some("sent")).await;
    pair.is_whole().await;
    pair.write(&pair.one, "new").await;
    for n in 0..10 {
        pair.one.put("a", "x:2", &format!("more {n}")).await;
    }
    let mut stream = session.stream(&pair.two, Some(&position)).await;
    next_events(&mut stream, &["resources", "prompts", "tools", "updated x:1"]).await;
}

/// Tables with revisions and the rows of a resource.
const TABLES: [&str; 4] = ["heads", "changes", "resources", "resource_contents"];

#[tokio::test(flavor = "multi_thread")]
async fn revision_below_memory_is_noticed_in_the_same_database() {
    let pair = Pair::start().await;
    let copies: String =
        TABLES.iter().map(|t| format!("create table saved.{t} as select * from {t}; ")).collect();
    pair.database.execute(&format!("create schema saved; {copies}")).await;
    for n in 0..5 {
        pair.one.put("a", TEXT, &format!("lost {n}")).await;
    }
    pair.both_read(Some("lost 4")).await;
    let replace: String = TABLES
        .iter()
        .map(|t| format!("delete from {t}; insert into {t} select * from saved.{t}; "))
        .collect();
    let lost = pair.database.number("select count(*) from changes").await;
    pair.database
        .execute(&format!("begin; set local session_replication_role = replica; {replace} commit"))
        .await;
    assert!(pair.database.number("select count(*) from changes").await < lost);
    // Only a lower revision reveals it, once something is written.
    pair.write(&pair.one, "written").await;
    pair.check("written").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_epoch_is_noticed() {
    let pair = Pair::start().await;
    let mut stream = listen(&pair.two, "a", &pair.key, json!("l"), everything()).await;
    stream.next().await.unwrap();
    pair.database.execute("update gateway set epoch = gen_random_uuid()").await;
    next_events(&mut stream, &["resources", "prompts", "tools", "updated x:1"]).await;
    pair.check("saved").await;
}

/// A replica may announce a revision that was lost after the others have noticed the loss.
#[tokio::test(flavor = "multi_thread")]
async fn announcement_of_a_lost_revision_is_read_for_once() {
    let (database, faults) = (database().await, FaultScript::new());
    let replica = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let key = replica.acme("a").await;
    replica.put("a", TEXT, "one").await;
    let mut stream = listen(&replica, "a", &key, json!("l"), everything()).await;
    stream.next().await.unwrap();
    let text = async || replica.http.text("a", &key, TEXT).await;
    assert_eq!(text().await.as_deref(), Some("one"));

    let heads: Vec<(Uuid, i64)> = sqlx::query_as("select scope, revision from heads")
        .fetch_all(&mut database.connect().await)
        .await
        .unwrap();
    let lost = |(scope, head)| FeedMessage::Raised(Scope(scope), Revision(head + 1_000));
    let lost: Vec<_> = heads.into_iter().map(lost).collect();
    let reads = || faults.arrivals(FailPoint::BeforeStreamsRead);
    let before = reads();
    let store = Store::new(store_options(database.options.clone()));
    store.notify_sender().await.unwrap().send(&lost).await.unwrap();
    eventually("changes are read for the stream", async || reads() > before).await;
    let loads = || faults.arrivals(FailPoint::Load);
    let from_memory = async || {
        let before = loads();
        text().await.as_deref() == Some("one") && loads() == before
    };
    eventually("memory answers again", from_memory).await;
    assert!(reads() < before + 10, "read {} times", reads() - before);

    replica.put("a", TEXT, "two").await;
    next_events(&mut stream, &["updated x:1"]).await;
    assert_eq!(text().await.as_deref(), Some("two"));
}
