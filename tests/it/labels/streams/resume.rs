//! Resumed streams of callers with labels: what is replayed depends on the labels now, and on those when an event was sent.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{EVERYTHING, Site};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::events::Session;
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

#[tokio::test]
async fn hidden_changes_are_not_replayed() {
    let site = Site::start().await;
    let key = site.key(&[]).await;
    let session = Session::open(&site.streams, "a", &key.secret, "2025-11-25").await;
    session.subscribe(&site.streams, "x:open").await;
    session.subscribe(&site.streams, "x:served").await;
    let mut stream = session.stream(&site.streams, None).await;
    let primed = stream.next().await.unwrap();
    drop(stream);
    site.change_hidden_things().await;
    let mut resumed = session.stream(&site.writer, primed.id.as_deref()).await;
    let resumed_at = resumed.next().await.unwrap();
    resumed.expect_events(&[]).await;
    drop(resumed);
    site.put("x:open", "2", &[]).await;
    let mut resumed = session.stream(&site.streams, resumed_at.id.as_deref()).await;
    resumed.next().await.unwrap();
    resumed.expect_events(&["updated x:open"]).await;
}

#[tokio::test]
async fn pruned_changes_reset_resumed_streams_of_those_they_concerned_only() {
    let site = Site::start_retaining(1).await;
    let mut resumes = Vec::new();
    for (labels, expected) in [(&["s"], &EVERYTHING[..]), (&["other"], &[])] {
        let session = site.session_of(&site.key(labels).await, "2025-11-25").await;
        let primed = session.stream(&site.streams, None).await.next().await.unwrap();
        resumes.push((session, primed.id, expected));
    }
    site.change_hidden_things().await;
    let kept = "select count(*) from changes where at > now() - interval '1100 ms'";
    eventually("the changes are too old to be kept", async || site.database.number(kept).await == 0).await;
    site.writer.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
    assert_eq!(site.database.number("select count(*) from changes").await, 0);
    for (session, id, expected) in &resumes {
        let mut resumed = session.stream(&site.streams, id.as_deref()).await;
        resumed.next().await.unwrap();
        resumed.expect_events(expected).await;
    }
    // What everybody sees resets both.
    site.put("x:open", "2", &[]).await;
    eventually("the change is too old to be kept", async || site.database.number(kept).await == 0).await;
    site.writer.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
    for (session, id, _) in &resumes {
        let mut resumed = session.stream(&site.streams, id.as_deref()).await;
        resumed.next().await.unwrap();
        resumed.expect_events(&EVERYTHING).await;
    }
}

#[tokio::test]
async fn labels_of_pruned_changes_are_remembered_up_to_a_limit() {
    let site = Site::start_retaining(1).await;
    for number in 0..70 {
        let labels: Vec<_> = (0..16).map(|n| format!("l{}", number * 16 + n)).collect();
        site.put("x:hidden", "2", &labels.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    let kept = "select count(*) from changes where at > now() - interval '1100 ms'";
    eventually("the changes are too old to be kept", async || site.database.number(kept).await == 0).await;
    site.writer.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
    assert_eq!(site.database.number("select count(*) from pruned_labels").await, 1_000);
    // The labels that are not remembered, and no others, are those of changes that count as everybody's.
    let forgotten =
        "select count(*) from heads where everybody_floor >= (select min(revision) from pruned_labels)
        and everybody_floor < (select max(revision) from pruned_labels)";
    assert_eq!(site.database.number(forgotten).await, 1);
}

#[tokio::test]
async fn resume_with_other_labels_notifies_of_everything() {
    let site = Site::start().await;
    let key = site.key(&["s"]).await;
    let session = site.session(&key).await;
    let mut stream = session.stream(&site.streams, None).await;
    site.put("x:open", "2", &[]).await;
    let event = stream.next().await.unwrap();
    assert_eq!(event.summary(), "updated x:open");
    drop(stream);
    site.put("x:hidden", "2", &["s"]).await;
    site.relabel(&key, &["t"]).await;
    let mut resumed = session.stream(&site.writer, event.id.as_deref()).await;
    let mut last = None;
    for expected in EVERYTHING {
        let event = resumed.next().await.unwrap();
        assert_eq!(event.summary(), expected);
        last = event.id;
    }
    drop(resumed);
    site.put("x:hidden", "3", &["s"]).await;
    site.put("x:open", "3", &[]).await;
    let mut resumed = session.stream(&site.streams, last.as_deref()).await;
    resumed.expect_events(&["updated x:open"]).await;
}

#[tokio::test]
async fn first_stream_with_other_labels_notifies_of_everything() {
    let site = Site::start().await;
    let key = site.key(&["s"]).await;
    let (session, same) = (site.session(&key).await, site.session(&site.key(&["s"]).await).await);
    site.relabel(&key, &[]).await;
    same.stream(&site.streams, None).await.expect_events(&[]).await;
    for _ in 0..2 {
        let mut stream = session.stream(&site.streams, None).await;
        stream.expect_events(&EVERYTHING).await;
        site.put("x:hidden", "2", &["s"]).await;
        stream.expect_events(&[]).await;
    }
}

#[tokio::test]
async fn rotated_key_resumes_by_its_own_labels() {
    let site = Site::start().await;
    let key = site.key(&["s"]).await;
    let mut session = site.session(&key).await;
    let mut stream = session.stream(&site.streams, None).await;
    site.put("x:hidden", "2", &["s"]).await;
    let event = stream.next().await.unwrap();
    drop(stream);
    let rotated = site.rotated(&key).await;
    session.key.clone_from(&rotated.secret);
    site.put("x:hidden", "3", &["s"]).await;
    let mut resumed = session.stream(&site.writer, event.id.as_deref()).await;
    let event = resumed.next().await.unwrap();
    assert_eq!(event.summary(), "updated x:hidden", "its labels are those of the key that it replaces");
    drop(resumed);
    site.relabel(&rotated, &[]).await;
    let mut resumed = session.stream(&site.streams, event.id.as_deref()).await;
    resumed.expect_events(&EVERYTHING).await;
    site.put("x:hidden", "4", &["s"]).await;
    site.put("x:open", "2", &[]).await;
    resumed.expect_events(&["updated x:open"]).await;
}

#[tokio::test]
async fn message_to_log_after_a_change_of_labels_loses_no_notification() {
    for code in ["key_expires", "superseded"] {
        let (database, silent) = (database().await, FaultScript::new());
        silent.lose_notifications(100);
        let writer = Builder::new(&database).fault_injector(silent).start().await;
        // Learns of all changes of the writer at once, by a sweep.
        let streams = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 5_000).start().await;
        let site = Site { writer, streams, faults: FaultScript::new(), database };
        site.writer.tenant("acme").await;
        site.writer.agent("acme", "a").await;
        site.put("x:open", "1", &[]).await;
        site.put("x:hidden", "1", &["s"]).await;
        let key = site.key(&["s"]).await;
        let session = Session::open(&site.streams, "a", &key.secret, "2025-06-18").await;
        session.done(&site.streams, "logging/setLevel", json!({"level": "info"})).await;
        for uri in ["x:open", "x:hidden"] {
            session.subscribe(&site.streams, uri).await;
        }
        let mut stream = session.stream(&site.streams, None).await;
        site.put("x:open", "2", &[]).await;
        assert_eq!(stream.next_summary().await, "updated x:open");
        site.relabel(&key, &[]).await;
        let newer = if code == "superseded" {
            Some(session.stream(&site.writer, None).await)
        } else {
            site.change("POST", &format!("/keys/{}/rotate", key.id), Some(json!({"graceSeconds": 3600})))
                .await;
            None
        };
        let logged = stream.next().await.unwrap();
        assert_eq!(logged.summary(), format!("log {code}"));
        drop((stream, newer));
        let mut resumed = session.stream(&site.writer, logged.id.as_deref()).await;
        let mut notified = resumed.drain(Duration::from_secs(1)).await;
        notified.retain(|summary| !summary.starts_with("log "));
        assert_eq!(
            notified,
            ["resources", "prompts", "tools", "updated x:hidden", "updated x:open"],
            "{code}"
        );
    }
}
