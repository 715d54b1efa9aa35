//! A session that is read while it ends is not kept.

use std::time::Duration;

use waggle::model::sources::Point;

use super::{HEARD, deaf_pair, pair};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_while_it_is_read_has_ended() {
    let pair = pair().await;
    let (writing, reading) =
        (pair.writer.caller(&pair.key, "a").await, pair.reader.caller(&pair.key, "a").await);
    let id = pair.writer.open(&writing).await;
    let session = pair.writer.found(&writing, &id).await;
    let held = pair.director.hold(Point::SessionFillRead);
    let first = pair.reader.registry().session(&reading, &id);
    let meanwhile = held.meanwhile(async {
        pair.writer.registry().end_session(&session).await.unwrap();
        tokio::time::sleep(HEARD).await;
    });
    // It was asked before the end; whatever it got, nobody gets it again.
    let (found, ()) = tokio::join!(first, meanwhile);
    assert!(found.is_ok());
    assert!(pair.reader.lost(&reading, &id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_only_a_younger_fill_has_seen_stands() {
    let pair = deaf_pair().await;
    let (writing, reading) =
        (pair.writer.caller(&pair.key, "a").await, pair.reader.caller(&pair.key, "a").await);
    let id = pair.writer.open(&writing).await;
    let session = pair.writer.found(&writing, &id).await;
    let held = pair.director.hold(Point::SessionFillRead);
    let first = pair.reader.registry().session(&reading, &id);
    let meanwhile = held.meanwhile(async {
        pair.writer.registry().take_stream(&session).await.unwrap();
        assert_eq!(pair.reader.found(&reading, &id).await.epoch, 1);
    });
    let (found, ()) = tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(first, meanwhile) })
        .await
        .unwrap();
    assert_eq!(found.unwrap().epoch, 0);
    assert_eq!(pair.reader.found(&reading, &id).await.epoch, 1);
}
