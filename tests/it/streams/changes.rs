//! Which notifications a change causes, in both eras.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::{Replica, encode, gateway, resource};
use crate::support::events::{Events, Session, listen};

const QUIET: Duration = Duration::from_millis(300);

/// A stream of each era with all subscriptions.
struct Both {
    replica: Replica,
    modern: Events,
    legacy: Events,
}

impl Both {
    /// Both receive these notifications and no others, in any order.
    async fn receive(&mut self, expected: &[&str], why: &str) {
        for stream in [&mut self.modern, &mut self.legacy] {
            let mut received = Vec::new();
            for _ in expected {
                received.push(stream.next_summary().await);
            }
            received.sort();
            assert_eq!(received, expected, "{why}");
        }
        let (modern, legacy) = tokio::join!(self.modern.drain(QUIET), self.legacy.drain(QUIET));
        assert_eq!([modern, legacy], [const { Vec::<String>::new() }; 2], "{why}");
    }

    async fn put(&self, path: &str, body: Value) {
        let answer = self.replica.admin("PUT", path, Some(body)).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    }

    async fn delete(&self, path: &str) {
        assert_eq!(self.replica.admin("DELETE", path, None).await.status, 204);
    }
}

fn template(uri_template: &str) -> String {
    format!("/agents/a/templates?uriTemplate={}", encode(uri_template))
}

fn body(text: &str) -> Value {
    json!({"name": "t", "template": text, "completions": {"city": ["Bern"]}})
}

/// `x:a` is a resource, `t:/bern` and `t:/old/bonn` are served by templates; all are subscribed to.
async fn both() -> (crate::support::cluster::Database, Both) {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    for uri_template in ["t:/{city}", "t:/old/{city}"] {
        let made = replica.admin("PUT", &template(uri_template), Some(body("1 {{ city }}"))).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let uris = ["x:a", "t:/bern", "t:/old/bonn"];
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    for uri in uris {
        session.subscribe(&replica, uri).await;
    }
    let filter = json!({
        "resourcesListChanged": true, "promptsListChanged": true, "resourceSubscriptions": uris,
    });
    let mut modern = listen(&replica, "a", &key, json!(1), filter).await;
    assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
    let legacy = session.stream(&replica, None).await;
    (database, Both { replica, modern, legacy })
}

#[tokio::test]
async fn resource_changes_cause_the_matching_notifications() {
    let (_database, mut both) = both().await;
    let path = resource("a", "x:a");
    let named = |name: &str, text: &str| json!({"name": name, "contents": [{"text": text}]});
    both.put(&path, named("a name", "2")).await;
    both.receive(&["updated x:a"], "it changed").await;
    both.put(&path, named("a name", "2")).await;
    both.receive(&[], "nothing changed").await;
    both.put(&path, named("another name", "2")).await;
    both.receive(&["resources", "updated x:a"], "it changed").await;
    let touch = format!("/agents/a/resources/touch?uri={}", encode("x:a"));
    assert_eq!(both.replica.admin("POST", &touch, None).await.status, 202);
    both.receive(&["updated x:a"], "it changed").await;
    both.put(&resource("a", "x:other"), named("other", "1")).await;
    both.receive(&["resources"], "it changed").await;
    both.put(&resource("a", "x:other"), named("other", "2")).await;
    both.receive(&[], "without a subscription").await;
    both.delete(&path).await;
    both.receive(&["resources", "updated x:a"], "it changed").await;
    both.put(&path, named("a name", "3")).await;
    both.receive(&["resources", "updated x:a"], "it exists again").await;
}

#[tokio::test]
async fn template_change_notifies_subscribers_of_its_uris() {
    let (_database, mut both) = both().await;
    both.put(&template("t:/{city}"), body("2 {{ city }}")).await;
    both.receive(&["updated t:/bern"], "it changed").await;
    let mut completions = body("2 {{ city }}");
    completions["completions"] = json!({"city": ["Bern", "Bonn"]});
    both.put(&template("t:/{city}"), completions).await;
    both.receive(&[], "completions are not part of any read").await;
    let touch = format!("/agents/a/resources/touch?uri={}", encode("t:/bern"));
    assert_eq!(both.replica.admin("POST", &touch, None).await.status, 202);
    both.receive(&["updated t:/bern"], "it was touched").await;
    let touch = format!("/agents/a/resources/touch?uri={}", encode("u:/bern"));
    assert_eq!(both.replica.admin("POST", &touch, None).await.status, 404);
    // What does not exist is not found, whatever the condition.
    let bearer = format!("Bearer {}", both.replica.operator);
    let headers = [("authorization", bearer.as_str()), ("if-match", "\"1\"")];
    let conditional = both.replica.http.send("POST", &format!("/admin/v1{touch}"), &headers, "").await;
    assert_eq!(conditional.status, 404);
    both.receive(&[], "no template serves it").await;
    let mut named = body("2 {{ city }}");
    named["name"] = json!("another name");
    both.put(&template("t:/old/{city}"), named).await;
    both.receive(&["resources", "updated t:/old/bonn"], "it changed").await;
    both.put(&template("t:/{+path}"), json!({"name": "t", "template": "3"})).await;
    both.receive(&["resources"], "other templates take precedence").await;
    both.delete(&template("t:/old/{city}")).await;
    both.receive(&["resources", "updated t:/old/bonn"], "now the last one answers").await;
    both.put(&resource("a", "t:/bern"), json!({"name": "n", "contents": [{"text": "exact"}]})).await;
    both.receive(&["resources", "updated t:/bern"], "it changed").await;
    both.put(&template("t:/{city}"), body("4 {{ city }}")).await;
    both.receive(&[], "the resource takes precedence").await;
}

#[tokio::test]
async fn prompt_change_notifies_of_the_list_only() {
    let (_database, mut both) = both().await;
    let prompt = |description: &str, text: &str| {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        json!({"description": description, "messages": messages})
    };
    let path = "/agents/a/prompts/p";
    both.put(path, prompt("d", "1")).await;
    both.receive(&["prompts"], "it changed").await;
    both.put(path, prompt("d", "2")).await;
    both.receive(&[], "a list has no messages").await;
    both.put(path, prompt("e", "2")).await;
    both.receive(&["prompts"], "it changed").await;
    both.delete(path).await;
    both.receive(&["prompts"], "it changed").await;
}

#[tokio::test]
async fn large_manifest_causes_one_list_notification() {
    let (_database, mut both) = both().await;
    let mut manifest = both.replica.admin("GET", "/agents/a/manifest", None).await.json();
    let resource = |n| json!({"uri": format!("y:{n}"), "name": "n", "contents": [{"text": "1"}]});
    manifest["resources"] = (0..10_000).map(resource).collect();
    both.put("/agents/a/manifest", manifest.clone()).await;
    both.receive(&["resources", "updated x:a"], "`x:a` was deleted with it").await;
    both.put("/agents/a/manifest", manifest).await;
    both.receive(&[], "applied again it changes nothing").await;
}
