//! `waggle demo`: the commands that it prints work, also after a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use tokio::process::Command;
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::app::resource;
use crate::support::cluster::database;
use crate::support::http::Client;
use crate::support::process::Site;
use crate::support::wait::{eventually, eventually_some};

/// The demo agent's manifest.
fn manifest() -> Value {
    serde_json::from_str(include_str!("../../config/demo/research.json")).unwrap()
}

/// The commands printed by all starts of the demo so far, each with the comment before it; waits for this many.
async fn commands(site: &Site, count: usize) -> Vec<String> {
    eventually_some("the demo prints its commands", async || {
        let printed = site.printed("stdout");
        let paragraphs = printed.split("\n\n").map(str::trim).filter(|text| text.starts_with('#'));
        let commands: Vec<_> = paragraphs.map(str::to_owned).collect();
        (commands.len() >= count && printed.ends_with("\n\n")).then_some(commands)
    })
    .await
}

/// The form of a command, without what differs between commands.
const FORM: &str = "curl -s -X POST \"http://…/research/mcp\" -H \"X-Agent-API-Key: …\" -H \"Content-Type: application/json\" -d '…'";

fn normalized(command: &str) -> String {
    let (comment, line) = command.split_once('\n').unwrap();
    assert!(comment.starts_with("# ") && !line.contains('\n'), "one line, to be pasted");
    let cut = |text: String, begin: &str, end: &str| {
        let (before, rest) = text.split_once(begin).unwrap();
        format!("{before}{begin}…{}", &rest[rest.find(end).unwrap()..])
    };
    let text = cut(line.to_owned(), "http://", "/research");
    cut(cut(text, "X-Agent-API-Key: ", "\""), "-d '", "'")
}

/// Runs a command in a shell; without curl, sends the same request.
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
    let words: Vec<_> = command.split('"').collect();
    let (path, body) = (words[1], command.split('\'').nth(1).unwrap());
    let headers: Vec<_> = words.iter().filter_map(|word| word.split_once(": ")).collect();
    let path = &path["http://".len()..];
    http.send("POST", &path[path.find('/').unwrap()..], &headers[..2], body.to_owned()).await.json()
}

/// The expected answers of the commands.
fn answers() -> [Value; 5] {
    let manifest = manifest();
    let resources = manifest["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 7);
    let mut listed: Vec<Value> = resources.iter().map(listed).collect();
    let skill_md = &manifest["skills"][0]["files"][0];
    listed.push(json!({
        "uri": "skill://research/literature-review/SKILL.md", "name": "literature-review",
        "description": "Reviews what is published about a topic. Use it when a question needs several sources that are compared.",
        "mimeType": "text/markdown", "size": skill_md["text"].as_str().unwrap().len(),
    }));
    listed.sort_by_key(|resource| resource["uri"].as_str().unwrap().to_owned());
    let config = resources.iter().find(|resource| resource["uri"] == "beeos://agent/config").unwrap();
    let contents = json!([{
        "uri": config["uri"], "mimeType": config["mimeType"], "text": config["contents"][0]["text"],
    }]);
    let mut prompt = manifest["prompts"][0].clone();
    prompt.as_object_mut().unwrap().remove("messages");
    for argument in prompt["arguments"].as_array_mut().unwrap() {
        argument.as_object_mut().unwrap().remove("completions");
    }
    let text = "深入研究量子计算。提供涵盖近期进展、主要参与者和实际应用的全面摘要。";
    let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
    let prompt_result = json!({"description": prompt["description"], "messages": messages});
    let tool_result = json!({"content": [{"type": "text", "text": config["contents"][0]["text"]}]});
    let (resources, contents) = (json!({"resources": listed}), json!({"contents": contents}));
    [resources, contents, json!({"prompts": [prompt]}), prompt_result, tool_result]
        .map(|result| json!({"jsonrpc": "2.0", "id": 1, "result": result}))
}

/// Removes the gateway's `lastModified` from resources whose owner set none.
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

/// A definition as a list shows it: without contents, and with the size of a single content.
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
async fn demo_key_and_changes_survive_restart() {
    let site = Site::new();
    let first = site.start("demo").await;
    let printed = commands(&site, 5).await;
    assert_eq!(printed.len(), 5);
    let expected = answers();
    for (command, expected) in printed.iter().zip(&expected) {
        assert_eq!(normalized(command), FORM, "{command}");
        assert_eq!(without_times(paste(&site, command).await), *expected, "{command}");
        assert_eq!(without_times(post(&site.http, command).await), *expected, "{command}");
    }
    let mode = fs::metadata(site.folder.data_dir().join("demo.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let changed = json!({"name": "mine", "contents": [{"text": "changed"}]});
    let path = resource("research", "beeos://agent/config");
    assert_eq!(site.admin("PUT", &path, Some(changed)).await.status, 200);
    assert_eq!(first.stop().await.code(), Some(0));

    let second = site.start("demo").await;
    // Both starts append to one file.
    let all = commands(&site, 10).await;
    assert_eq!(all[5..], printed, "the same key");
    assert_eq!(paste(&site, &printed[1]).await["result"]["contents"][0]["text"], "changed");
    assert_eq!(paste(&site, &printed[4]).await["result"]["content"][0]["text"], "changed");
    assert_eq!(without_times(paste(&site, &printed[3]).await), expected[3]);
    assert_eq!(second.stop().await.code(), Some(0));
}

#[tokio::test]
async fn demo_mounts_the_documentation_of_the_project() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
    assert!(include_str!("../../scripts/run-demo").contains("set -- demo --docs docs\n"));
    let site = Site::new();
    let first = site.start_with("demo", &["--docs", docs]).await;
    let printed = commands(&site, 6).await;
    assert_eq!(normalized(&printed[5]), FORM);
    let text = include_str!("../../docs/concepts.md");
    let content = json!({"uri": "docs:///concepts.md", "mimeType": "text/markdown", "text": text});
    let expected = json!({"jsonrpc": "2.0", "id": 1, "result": {"contents": [content]}});
    assert_eq!(paste(&site, &printed[5]).await, expected);
    let is_listed = async || {
        let listed = post(&site.http, &printed[0]).await;
        let uris = listed["result"]["resources"].as_array().unwrap().iter().map(|listed| &listed["uri"]);
        uris.filter(|uri| **uri == "docs:///concepts.md" || **uri == "docs:///adr/README.md").count() == 2
    };
    eventually("the pages are listed", is_listed).await;
    let [mount, connection] =
        ["/agents/research/mounts/docs", "/connections/demo-docs"].map(|path| site.admin("GET", path, None));
    let (mount, connection) = tokio::join!(mount, connection);
    assert_eq!(mount.json()["include"], json!(["**/*.md"]));
    assert_eq!(connection.json()["tenants"], json!(["demo"]));
    assert_eq!(first.stop().await.code(), Some(0));

    // Started without them, it does without them, and says so.
    let second = site.start("demo").await;
    let all = commands(&site, 11).await;
    assert_eq!(all[6..], printed[..5]);
    assert!(site.printed("stderr").contains("the demo agent has no documentation"));
    assert_eq!(second.stop().await.code(), Some(0));
}

#[tokio::test]
async fn demo_runs_on_a_given_database() {
    let url = database().await.options.to_url_lossy();
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let site = Site::new().set("DATABASE_URL", url).set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
    let gateway = site.start("demo").await;
    for (command, expected) in commands(&site, 5).await.iter().zip(&answers()) {
        assert_eq!(without_times(paste(&site, command).await), *expected, "{command}");
    }
    assert!(!site.operator_file().exists());
    assert_eq!(gateway.stop().await.code(), Some(0));
}
