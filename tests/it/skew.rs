//! Replicas with skewed clocks.

use http::StatusCode;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use waggle::model::clock::DatabaseClock;
use waggle::model::system::{Clock, SystemClock};

use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database};
use crate::support::events::Session;
use crate::support::wait::eventually;

/// The machine's clock, with an offset.
struct Skewed(time::Duration);

impl Clock for Skewed {
    fn now(&self) -> OffsetDateTime {
        SystemClock.now() + self.0
    }
}

async fn skewed(database: &Database, hours: i64) -> Replica {
    let clock = DatabaseClock::new(Skewed(time::Duration::hours(hours)));
    Builder::new(database).clock(std::sync::Arc::new(clock)).start_unready().await
}

/// Waits until `readyz` returns this answer.
async fn readiness_becomes(replica: &Replica, status: u16, body: Value) {
    eventually("readyz answers as expected", async || {
        let answer = replica.http.get("/readyz").await;
        answer.status == status && answer.json() == body
    })
    .await;
}

#[tokio::test]
async fn replica_with_a_skewed_clock_is_not_ready() {
    let (database, replica) = gateway().await;
    // The database's time is two minutes ahead for connections from here on.
    let ahead = "create function public.clock_timestamp() returns timestamptz language sql as \
            $$ select pg_catalog.clock_timestamp() + interval '2 minutes' $$; \
        do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$; \
        select pg_terminate_backend(pid) from pg_stat_activity \
            where datname = current_database() and pid <> pg_backend_pid()";
    database.execute(ahead).await;
    readiness_becomes(&replica, 503, json!({"status": "unready", "reasons": ["clock_skew"]})).await;
    database.execute("drop function public.clock_timestamp()").await;
    readiness_becomes(&replica, 200, json!({"status": "ready"})).await;
}

async fn status(replica: &Replica, key: &str) -> StatusCode {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    replica.http.post("a", key, &list).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_skewed_clocks_agree_on_keys_and_sessions() {
    let database = database().await;
    let (right, ahead, behind) =
        tokio::join!(skewed(&database, 0), skewed(&database, 1), skewed(&database, -1));
    let replicas = [&right, &ahead, &behind];
    right.ready().await;
    for replica in [&ahead, &behind] {
        readiness_becomes(replica, 503, json!({"status": "unready", "reasons": ["clock_skew"]})).await;
    }
    let _ = right.acme("a").await;

    let until = (OffsetDateTime::now_utc() + time::Duration::minutes(30)).format(&Rfc3339).unwrap();
    let made = right.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": until}))).await.json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    for replica in replicas {
        assert_eq!(status(replica, key).await, StatusCode::OK, "the key is valid for half an hour");
    }

    let rotate = json!({"graceSeconds": 600});
    let rotated = ahead.admin("POST", &format!("/keys/{id}/rotate"), Some(rotate)).await;
    assert!(rotated.status.is_success(), "{}", rotated.text());
    let successor = rotated.json()["key"].as_str().unwrap().to_owned();
    for replica in replicas {
        assert_eq!(status(replica, key).await, StatusCode::OK, "the grace period lasts for ten minutes");
        assert_eq!(status(replica, &successor).await, StatusCode::OK);
    }

    for opener in replicas {
        let session = Session::open(opener, "a", &successor, "2025-06-18").await;
        for replica in replicas {
            let listed = session.call(replica, "resources/list", json!({})).await;
            assert_eq!(listed.status, StatusCode::OK, "the session is not idle");
        }
    }

    // The grace period ends at the same time on every replica.
    let rotated = behind.admin("POST", "/agents/a/keys", Some(json!({}))).await.json();
    let (id, old) = (rotated["id"].as_str().unwrap(), rotated["key"].as_str().unwrap());
    let rotate = json!({"graceSeconds": 1});
    assert!(right.admin("POST", &format!("/keys/{id}/rotate"), Some(rotate)).await.status.is_success());
    for replica in replicas {
        let is_over = async || status(replica, old).await == StatusCode::UNAUTHORIZED;
        eventually("the grace is over", is_over).await;
    }
}
