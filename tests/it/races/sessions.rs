//! A session that ends while it is loaded is not cached.

use std::time::Duration;

use waggle::model::system::FailPoint;

use super::{pair, pair_without_notifications};

#[tokio::test(flavor = "multi_thread")]
async fn session_ended_during_its_load_is_not_cached() {
    let pair = pair().await;
    let (writing, reading) =
        (pair.writer.caller(&pair.key, "a").await, pair.reader.caller(&pair.key, "a").await);
    let id = pair.writer.open(&writing).await;
    let session = pair.writer.found(&writing, &id).await;
    let held = pair.faults.hold(FailPoint::SessionFillRead);
    let first = pair.reader.sessions().find(&reading, &id);
    let meanwhile = held.meanwhile(async {
        pair.writer.sessions().end(&session).await.unwrap();
        pair.reader.caught_up().await;
    });
    // It was sent before the end; its answer does not matter, but must not be cached.
    let (found, ()) = tokio::join!(first, meanwhile);
    assert!(found.is_ok());
    assert!(pair.reader.lost(&reading, &id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_seen_by_a_newer_fill_only_holds() {
    let pair = pair_without_notifications().await;
    let (writing, reading) =
        (pair.writer.caller(&pair.key, "a").await, pair.reader.caller(&pair.key, "a").await);
    let id = pair.writer.open(&writing).await;
    let session = pair.writer.found(&writing, &id).await;
    let held = pair.faults.hold(FailPoint::SessionFillRead);
    let first = pair.reader.sessions().find(&reading, &id);
    let meanwhile = held.meanwhile(async {
        pair.writer.sessions().take_stream(&session).await.unwrap();
        assert_eq!(pair.reader.found(&reading, &id).await.streams_opened, 1);
    });
    let (found, ()) = tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(first, meanwhile) })
        .await
        .unwrap();
    assert_eq!(found.unwrap().streams_opened, 0);
    assert_eq!(pair.reader.found(&reading, &id).await.streams_opened, 1);
}
