//! What is a change, as both eras are told of it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::{Replica, encode, gateway, resource};
use crate::events::{Events, Session, listen};

const QUIET: Duration = Duration::from_millis(300);
const NOTHING: [&str; 0] = [];

/// A stream of each era that wants to be told of everything.
struct Both {
    replica: Replica,
    modern: Events,
    legacy: Events,
}

impl Both {
    async fn told(&mut self) -> Vec<String> {
        let (mut modern, mut legacy) = tokio::join!(self.modern.told_for(QUIET), self.legacy.told_for(QUIET));
        modern.sort();
        legacy.sort();
        assert_eq!(modern, legacy);
        modern
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
async fn both() -> (crate::cluster::Database, Both) {
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
    assert_eq!(modern.told().await, "notifications/subscriptions/acknowledged");
    let legacy = session.stream(&replica, None).await;
    (database, Both { replica, modern, legacy })
}

#[tokio::test]
async fn contents_definitions_and_lists_of_resources_are_told_as_what_they_are() {
    let (_database, mut both) = both().await;
    let path = resource("a", "x:a");
    let named = |name: &str, text: &str| json!({"name": name, "contents": [{"text": text}]});
    both.put(&path, named("a name", "2")).await;
    assert_eq!(both.told().await, ["updated x:a"]);
    both.put(&path, named("a name", "2")).await;
    assert_eq!(both.told().await, NOTHING, "nothing changed");
    both.put(&path, named("another name", "2")).await;
    assert_eq!(both.told().await, ["resources", "updated x:a"]);
    let touch = format!("/agents/a/resources/touch?uri={}", encode("x:a"));
    assert_eq!(both.replica.admin("POST", &touch, None).await.status, 202);
    assert_eq!(both.told().await, ["updated x:a"]);
    both.put(&resource("a", "x:other"), named("other", "1")).await;
    assert_eq!(both.told().await, ["resources"]);
    both.put(&resource("a", "x:other"), named("other", "2")).await;
    assert_eq!(both.told().await, NOTHING, "nobody subscribed to it");
    both.delete(&path).await;
    assert_eq!(both.told().await, ["resources", "updated x:a"]);
    both.put(&path, named("a name", "3")).await;
    assert_eq!(both.told().await, ["resources", "updated x:a"], "it is there again");
}

#[tokio::test]
async fn a_template_tells_of_what_it_serves() {
    let (_database, mut both) = both().await;
    both.put(&template("t:/{city}"), body("2 {{ city }}")).await;
    assert_eq!(both.told().await, ["updated t:/bern"]);
    let mut completions = body("2 {{ city }}");
    completions["completions"] = json!({"city": ["Bern", "Bonn"]});
    both.put(&template("t:/{city}"), completions).await;
    assert_eq!(both.told().await, NOTHING, "what is offered for a variable is read by nobody");
    let mut named = body("2 {{ city }}");
    named["name"] = json!("another name");
    both.put(&template("t:/old/{city}"), named).await;
    assert_eq!(both.told().await, ["resources", "updated t:/old/bonn"]);
    both.put(&template("t:/{+path}"), json!({"name": "t", "template": "3"})).await;
    assert_eq!(both.told().await, ["resources"], "others answer before it does");
    both.delete(&template("t:/old/{city}")).await;
    assert_eq!(both.told().await, ["resources", "updated t:/old/bonn"], "now the last one does");
    both.put(&resource("a", "t:/bern"), json!({"name": "n", "contents": [{"text": "exact"}]})).await;
    assert_eq!(both.told().await, ["resources", "updated t:/bern"]);
    both.put(&template("t:/{city}"), body("4 {{ city }}")).await;
    assert_eq!(both.told().await, NOTHING, "the resource answers before it does");
}

#[tokio::test]
async fn prompts_tell_of_their_list_alone() {
    let (_database, mut both) = both().await;
    let prompt = |description: &str, text: &str| {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        json!({"description": description, "messages": messages})
    };
    let path = "/agents/a/prompts/p";
    both.put(path, prompt("d", "1")).await;
    assert_eq!(both.told().await, ["prompts"]);
    both.put(path, prompt("d", "2")).await;
    assert_eq!(both.told().await, NOTHING, "a list does not show messages");
    both.put(path, prompt("e", "2")).await;
    assert_eq!(both.told().await, ["prompts"]);
    both.delete(path).await;
    assert_eq!(both.told().await, ["prompts"]);
}

#[tokio::test]
async fn a_manifest_that_changes_ten_thousand_things_is_one_change_of_the_list() {
    let (_database, mut both) = both().await;
    let mut manifest = both.replica.admin("GET", "/agents/a/manifest", None).await.json();
    let resource = |n| json!({"uri": format!("y:{n}"), "name": "n", "contents": [{"text": "1"}]});
    manifest["resources"] = (0..10_000).map(resource).collect();
    both.put("/agents/a/manifest", manifest.clone()).await;
    // `x:a` went with it.
    let (modern, legacy) = (both.modern.next().await.unwrap(), both.legacy.next().await.unwrap());
    let mut told = vec![modern.told(), legacy.told()];
    told.extend(both.modern.told_for(QUIET).await);
    told.extend(both.legacy.told_for(QUIET).await);
    told.sort();
    assert_eq!(told, ["resources", "resources", "updated x:a", "updated x:a"]);
    both.put("/agents/a/manifest", manifest).await;
    assert_eq!(both.told().await, NOTHING, "applied again it changes nothing");
}
