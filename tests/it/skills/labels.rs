//! A skill with labels is hidden whole, with the directories that only lead to it.

use serde_json::{Value, json};

use super::{body, put};
use crate::support::app::{Replica, gateway};
use crate::support::wait::eventually_some;

async fn labelled(replica: &Replica, labels: &[&str]) -> String {
    let made =
        replica.admin("POST", "/agents/a/keys", Some(json!({"scopes": ["mcp"], "labels": labels}))).await;
    made.json()["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn hidden_skill_is_answered_as_if_not_registered() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (none, team) = (labelled(&replica, &[]).await, labelled(&replica, &["team"]).await);
    let mut secret = body("plan", &[("x", "secret")]);
    secret["labels"] = json!(["team"]);
    put(&replica, "hidden/plan", secret.clone()).await;
    put(&replica, "acme/plan", secret).await;
    put(&replica, "acme/open", body("open", &[])).await;
    let call =
        async |key: &str, method: &str, params: Value| replica.http.call("a", key, method, params).await;
    let uris = async |key: &str, method: &str, list: &str, params: Value| {
        let listed = call(key, method, params).await["result"][list].take();
        let uris = listed.as_array().unwrap().iter().map(|item| item["uri"].as_str().unwrap().to_owned());
        uris.collect::<Vec<_>>()
    };
    let open = "skill://acme/open/SKILL.md";
    let all = [open, "skill://acme/plan/SKILL.md", "skill://hidden/plan/SKILL.md"];
    for (method, list) in [("skills/list", "skills"), ("resources/list", "resources")] {
        assert_eq!(uris(&none, method, list, json!({})).await, [open]);
        assert_eq!(uris(&team, method, list, json!({})).await, all);
    }
    let directory = json!({"uri": "skill://acme"});
    assert_eq!(
        uris(&none, "resources/directory/read", "resources", directory.clone()).await,
        ["skill://acme/open"]
    );
    let both = ["skill://acme/open", "skill://acme/plan"];
    assert_eq!(uris(&team, "resources/directory/read", "resources", directory).await, both);
    // Byte for byte as a name of the same length that is not registered.
    for (method, hidden, missing) in [
        ("skills/get", "skill://hidden/plan/SKILL.md", "skill://absent/plan/SKILL.md"),
        ("resources/directory/read", "skill://hidden", "skill://absent"),
        ("resources/directory/read", "skill://hidden/plan", "skill://absent/plan"),
        ("resources/read", "skill://hidden/plan/x", "skill://absent/plan/x"),
        ("resources/read", "skill://hidden/plan/SKILL.md", "skill://absent/plan/SKILL.md"),
    ] {
        let answer = async |uri: &str| call(&none, method, json!({"uri": uri})).await.to_string();
        assert_eq!(
            answer(hidden).await,
            answer(missing).await.replace("absent", "hidden"),
            "{method} {hidden}"
        );
        let shown = call(&team, method, json!({"uri": hidden})).await;
        assert!(shown.get("result").is_some(), "{shown}");
    }
    let hidden = eventually_some("the row of the refusal", async || {
        let rows = replica.admin("GET", "/audit?agent=a&method=skills/get", None).await.json();
        let mut rows = rows["items"].as_array().unwrap().iter();
        let is_refusal = |row: &&Value| {
            row["subject"] == "skill://hidden/plan/SKILL.md" && row["outcome"] == "invalid_params"
        };
        rows.find(is_refusal).map(|row| row["hidden"].clone())
    });
    assert_eq!(hidden.await, true);
}
