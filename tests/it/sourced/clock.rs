//! A page that differs at each fetch.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Site;
use super::upstream::Reply;
use crate::support::events::listen;

/// How many notifications of one URI are awaited.
const TICKS: u32 = 5;

#[tokio::test]
async fn page_that_always_differs_is_one_revision_a_poll() {
    let site = Site::with_limits(json!({"pollMs": 1_000, "perSecond": 1_000, "burst": 1_000})).await;
    site.upstream.answer("clock", Reply::Clock);
    site.resource("clock", json!({"connection": "api", "path": "clock", "ttlMs": 0})).await;
    let revision = async || site.replica.admin("GET", "/agents/notes/manifest", None).await.revision();

    // Nothing is subscribed: reads find another page each, and write nothing.
    let before = revision().await;
    let mut pages = Vec::new();
    for _ in 0..50 {
        pages.push(site.text("test://clock").await);
    }
    pages.dedup();
    assert_eq!((pages.len(), revision().await), (50, before));

    let filter = json!({"resourceSubscriptions": ["test://clock"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    assert_eq!(stream.next_summary().await, "updated test://clock");
    let (began, first) = (Instant::now(), revision().await);
    for _ in 0..TICKS {
        // Reads between polls, which find other pages.
        for _ in 0..10 {
            site.text("test://clock").await;
        }
        assert_eq!(stream.next_summary().await, "updated test://clock");
    }
    let (took, last) = (began.elapsed(), revision().await);
    println!("{} revisions in {took:?}", last - first);
    // At most one a second.
    assert!(took > Duration::from_secs(u64::from(TICKS) - 1), "{took:?}");
    assert!(last - first <= i64::try_from(took.as_secs()).unwrap() + 1, "{} in {took:?}", last - first);

    // Once nothing is subscribed, there are no more.
    drop(stream);
    site.replica.has_streams(0).await;
    let ended = async || {
        let before = revision().await;
        // Not for a condition: no revision is made during this time.
        tokio::time::sleep(Duration::from_secs(3)).await;
        revision().await == before
    };
    crate::support::wait::eventually("no more revisions", ended).await;
    let before = revision().await;
    site.text("test://clock").await;
    assert_eq!(revision().await, before);
}
