//! `waggle demo`: what it prints can be pasted, and goes on working.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use tokio::process::Command;
use waggle::model::key::{KeyKind, SecretKey};

use crate::cluster::database;
use crate::http::Client;
use crate::process::Site;

/// The demo agent as it is registered.
fn manifest() -> Value {
    serde_json::from_str(include_str!("../../config/demo/research.json")).unwrap()
}

/// The commands that the demo prints, each with the comment before it.
async fn commands(site: &Site) -> Vec<String> {
    for _ in 0..500 {
        let printed = site.printed("stdout");
        let paragraphs = printed.split("\n\n").map(str::trim).filter(|text| text.starts_with('#'));
        let commands: Vec<_> = paragraphs.map(str::to_owned).collect();
        if commands.len() >= 2 && printed.ends_with("\n\n") {
            return commands;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the demo prints nothing to paste: {}", site.printed("stdout"));
}

/// Pastes a command into a shell; where there is no curl, does what it says.
async fn paste(site: &Site, command: &str) -> Value {
    let curl = Command::new("curl").arg("--version").output().await;
    if curl.is_ok_and(|output| output.status.success()) {
        let output = Command::new("sh").args(["-c", command]).output().await.unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
        return serde_json::from_slice(&output.stdout).unwrap();
    }
    post(&site.http, command).await
}

async fn post(http: &Client, command: &str) -> Value {
    let quoted: Vec<_> = command.split('\'').skip(1).step_by(2).collect();
    let (body, headers) = quoted.split_last().unwrap();
    let headers: Vec<_> = headers.iter().map(|header| header.split_once(": ").unwrap()).collect();
    let url = command.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let path = &url["http://".len()..];
    http.send("POST", &path[path.find('/').unwrap()..], &headers, (*body).to_owned()).await.json()
}

/// What the two commands must answer.
fn answers() -> [Value; 2] {
    let manifest = manifest();
    let resources = manifest["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 7);
    let mut listed: Vec<Value> = resources.iter().map(listed).collect();
    listed.sort_by_key(|resource| resource["uri"].as_str().unwrap().to_owned());
    let config = resources.iter().find(|resource| resource["uri"] == "beeos://agent/config").unwrap();
    let contents = json!([{
        "uri": config["uri"], "mimeType": config["mimeType"], "text": config["contents"][0]["text"],
    }]);
    [json!({"resources": listed}), json!({"contents": contents})]
        .map(|result| json!({"jsonrpc": "2.0", "id": 1, "result": result}))
}

/// Takes out when the gateway says that a resource was last modified, where its owner does not say.
fn without_times(mut answer: Value) -> Value {
    let resources = answer.pointer_mut("/result/resources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten() {
        if resource["annotations"].as_object().unwrap().keys().eq(["lastModified"]) {
            let at = resource["annotations"]["lastModified"].as_str().unwrap();
            assert!(at.len() == 20 && at.ends_with('Z'), "{at}");
            resource.as_object_mut().unwrap().remove("annotations");
        }
    }
    answer
}

/// A definition as a list shows it: without its contents, and with their size where that is one number.
fn listed(resource: &Value) -> Value {
    let mut listed = resource.clone();
    let contents = listed.as_object_mut().unwrap().remove("contents").unwrap();
    if let Some([content]) = contents.as_array().map(Vec::as_slice) {
        let size = content["text"].as_str().map_or_else(
            || content["blob"].as_str().map(|blob| blob.len() / 4 * 3 - blob.matches('=').count()),
            |text| Some(text.len()),
        );
        listed["size"] = json!(size.unwrap());
    }
    listed
}

#[tokio::test]
async fn the_lines_that_the_demo_prints_answer_as_registered_and_again_after_a_restart() {
    let site = Site::new();
    let first = site.start("demo").await;
    let printed = commands(&site).await;
    let expected = answers();
    for (command, expected) in printed.iter().zip(&expected) {
        assert_eq!(without_times(paste(&site, command).await), *expected, "{command}");
        assert_eq!(without_times(post(&site.http, command).await), *expected, "{command}");
    }
    assert_eq!(first.stop().await.code(), Some(0));

    let second = site.start("demo").await;
    for (command, expected) in printed.iter().zip(&expected) {
        assert_eq!(without_times(paste(&site, command).await), *expected, "{command}");
    }
    // Both starts print into one file.
    let again = [printed.clone(), printed].concat();
    while commands(&site).await.len() < again.len() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(commands(&site).await, again);
    assert_eq!(second.stop().await.code(), Some(0));
}

#[tokio::test]
async fn the_demo_runs_on_a_database_that_it_is_given_too() {
    let url = database().await.options.to_url_lossy();
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let site = Site::new().set("DATABASE_URL", url).set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
    let gateway = site.start("demo").await;
    for (command, expected) in commands(&site).await.iter().zip(&answers()) {
        assert_eq!(without_times(paste(&site, command).await), *expected, "{command}");
    }
    assert!(!site.operator_file().exists());
    assert_eq!(gateway.stop().await.code(), Some(0));
}
