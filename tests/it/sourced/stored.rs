//! What the watching replica has found is answered by all.

use serde_json::{Value, json};

use super::Site;
use super::upstream::tagged;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::events::listen;
use crate::support::wait::eventually;

fn polled() -> Value {
    json!({"pollMs": 1_000})
}

#[tokio::test]
async fn what_the_watcher_found_is_read_on_every_replica_without_a_fetch() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database.clone(), first, polled()).await;
    site.upstream.answer("a", tagged("one", "1"));
    site.upstream.answer("t/b", tagged("one", "1"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 5_000})).await;
    let place = json!({"connection": "api", "path": "t/{v}", "ttlMs": 5_000});
    assert_eq!(site.template("test://t/{v}", json!({"name": "t", "source": place})).await.status, 201);
    second.caught_up().await;
    let read = async |replica: &Replica, uri: &str| replica.http.text("notes", &site.key, uri).await;
    for (uri, path) in [("test://a", "a"), ("test://t/b", "t/b")] {
        let mut stream =
            listen(&site.replica, "notes", &site.key, json!(1), json!({"resourceSubscriptions": [uri]}))
                .await;
        let acknowledged = "notifications/subscriptions/acknowledged";
        stream.expect_events(&[acknowledged, &format!("updated {uri}")]).await;
        assert_eq!(read(&second, uri).await.as_deref(), Some("one"));
        site.upstream.answer(path, tagged("two", "2"));
        assert_eq!(stream.next_summary().await, format!("updated {uri}"));
        // Another answer of the source, which the watcher has not seen.
        site.upstream.answer(path, tagged("three", "3"));
        drop(stream);
        let fetches = second.metric("waggle_source_fetches_total{outcome=\"ok\"}").await;
        assert_eq!(read(&second, uri).await.as_deref(), Some("two"), "{uri}");
        assert_eq!(second.metric("waggle_source_fetches_total{outcome=\"ok\"}").await, fetches, "{uri}");
        // It is not answered for longer than `ttlMs`.
        eventually("its time is over", async || read(&second, uri).await.as_deref() == Some("three")).await;
    }
    // Nothing is kept that is not watched.
    let stored = async || database.number("select count(*) from found_contents").await == 0;
    eventually("what was found is removed", stored).await;
}

#[tokio::test]
async fn what_is_stored_of_a_connection_is_bounded() {
    let database = database().await;
    let builder = || Builder::new(&database).set("WAGGLE_SOURCES__WATCHED_BYTES", 1_000);
    let (first, second) = tokio::join!(builder().start(), builder().start());
    let site = Site::over(database.clone(), first, polled()).await;
    for name in ["a", "b"] {
        site.upstream.answer(name, tagged(&"x".repeat(700), "1"));
        site.resource(name, json!({"connection": "api", "path": name, "ttlMs": 60_000})).await;
    }
    second.caught_up().await;
    let filter = json!({"resourceSubscriptions": ["test://a", "test://b"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    for _ in 0..3 {
        stream.next_summary().await;
    }
    assert_eq!(database.number("select count(*) from found_contents").await, 1);
    for uri in ["test://a", "test://b"] {
        assert_eq!(second.http.text("notes", &site.key, uri).await.map(|text| text.len()), Some(700));
    }
}
