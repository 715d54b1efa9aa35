//! Notifications: one `list_changed` for each change of a skill, and an `updated` for each file that it changes.

use serde_json::json;

use super::{body, put, skill};
use crate::support::app::gateway;
use crate::support::events::{Session, listen};

#[tokio::test]
async fn changed_files_are_notified_in_both_eras() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    put(&replica, "s", body("s", &[("same", "1"), ("changed", "1"), ("removed", "1")])).await;
    let uris = ["skill://s/SKILL.md", "skill://s/same", "skill://s/changed", "skill://s/removed"];
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": uris});
    let mut modern = listen(&replica, "a", &key, json!(1), filter).await;
    assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    for uri in uris {
        session.subscribe(&replica, uri).await;
    }
    let mut legacy = session.stream(&replica, None).await;
    put(&replica, "s", body("s", &[("same", "1"), ("changed", "2")])).await;
    let expected = ["resources", "updated skill://s/changed", "updated skill://s/removed"];
    for stream in [&mut modern, &mut legacy] {
        stream.expect_events(&expected).await;
    }
    replica.admin("DELETE", &skill("s"), None).await;
    let expected =
        ["resources", "updated skill://s/SKILL.md", "updated skill://s/changed", "updated skill://s/same"];
    for stream in [&mut modern, &mut legacy] {
        stream.expect_events(&expected).await;
    }
}
