//! Connections that a tenant may no longer use.

use serde_json::json;

use super::{Site, guides, uris};
use crate::support::events::listen;
use crate::support::wait::eventually;

#[tokio::test]
async fn files_that_may_not_be_read_are_not_listed() {
    let files = ["file:///guides/a.md", "file:///guides/b.md"];
    let site = Site::new().await;
    site.replica.tenant("bee").await;
    site.write("guides/a.md", "one");
    site.write("guides/b.md", "two");
    site.mount("guides", guides()).await;
    let other = site.other().await;
    let mut stream =
        listen(&other, "notes", &site.key, json!(1), json!({"resourcesListChanged": true})).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged"]).await;
    for (taken, given) in [
        (json!({"enabled": false}), json!({"enabled": true})),
        (json!({"tenants": ["bee"]}), json!({"tenants": ["acme"]})),
    ] {
        let change =
            async |change| site.replica.admin("PATCH", "/connections/docs", Some(change)).await.status;
        assert_eq!(change(taken.clone()).await, 200);
        let read = site.call("resources/read", json!({"uri": files[0]})).await;
        assert_eq!(read["error"]["data"]["reason"], "not_allowed", "{taken}");
        eventually("nothing is listed", async || uris(&other, &site.key).await.is_empty()).await;
        assert_eq!(stream.next_summary().await, "resources");
        let is_recorded = async || {
            let status = site.status("guides").await;
            (&status["state"], &status["entries"], &status["reason"])
                == (&json!("failed"), &json!(0), &json!("not_allowed"))
        };
        eventually("the state says why", is_recorded).await;
        assert_eq!(change(given).await, 200);
        eventually("the files are listed again", async || uris(&other, &site.key).await == files).await;
        assert_eq!(stream.next_summary().await, "resources");
        assert_eq!(site.text(files[0]).await.as_deref(), Some("one"));
    }
}
