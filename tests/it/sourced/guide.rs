//! The commands of `docs/sources.md`, run in a shell one after another.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::upstream::{Reply, Upstream, text};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;

const PAGE: &str = include_str!("../../../docs/sources.md");

/// The code blocks of the page that are commands, each with the JSON that follows as its output.
fn commands() -> Vec<(String, Option<Value>)> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    let mut commands: Vec<(String, Option<Value>)> = Vec::new();
    for block in blocks {
        let (language, body) = block.split_once('\n').unwrap();
        match language {
            "sh" => commands.push((body.to_owned(), None)),
            "json" => commands.last_mut().unwrap().1 = Some(serde_json::from_str(body).unwrap()),
            "yaml" => {}
            _ => panic!("{language}"),
        }
    }
    commands
}

/// Runs a command in a shell; without curl, sends the same request. Returns what it prints.
async fn run(replica: &Replica, sources: &Path, command: &str) -> String {
    let curl = Command::new("curl").arg("--version").output().await;
    if command.starts_with("curl ") && !curl.is_ok_and(|output| output.status.success()) {
        let path = command.split("$WAGGLE_URL").nth(1).unwrap().split('"').next().unwrap();
        let body = command.split("-d '").nth(1).unwrap().split('\'').next().unwrap();
        let headers = [("content-type", "application/json")];
        return replica.http.send("POST", path, &headers, body.to_owned()).await.text();
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_waggle")).parent().unwrap();
    let output = Command::new("sh")
        .args(["-euc", command])
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .env("WAGGLE_URL", format!("http://{}", replica.running.address))
        .env("WAGGLE_KEY", &replica.operator)
        .env("SOURCES", sources)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn commands_of_the_page_answer_as_it_says() {
    let upstream = Upstream::start().await;
    upstream.answer("forecast/S%C3%A3o%20Paulo?units=metric", text("{\"celsius\":24}"));
    let modified = ("last-modified", "Sat, 01 Aug 2026 00:00:00 GMT".to_owned());
    let object = Reply::Answer(200, vec![("etag", "\"1\"".to_owned()), modified], b"# Tides\n".to_vec());
    upstream.answer_at("/handbook/guides/tides.md".to_owned(), object);
    let (database, keys, folder) =
        (database().await, tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sources = folder.path().canonicalize().unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let key_file = keys.path().join("keys");
    std::fs::write(&key_file, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let replica = Builder::new(&database)
        .set("WAGGLE_SOURCES__FILE_ROOTS", format!("{examples},{}", sources.display()))
        .set("WAGGLE_SOURCES__KEY_FILE", key_file.display())
        .start()
        .await;
    for (command, expected) in commands() {
        // The API of the page, in a network of this machine.
        let command = command.replace("http://weather.internal:8080/v1", &upstream.url());
        let command = command.replace("http://store.internal:9000", upstream.url().trim_end_matches("/v1/"));
        let printed = run(&replica, &sources, &command.replace("10.0.0.0/8", "127.0.0.0/8")).await;
        if let Some(expected) = expected {
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), expected, "{command}");
        }
    }
    let asked = upstream.asked();
    let targets = ["/v1/forecast/S%C3%A3o%20Paulo?units=metric", "/handbook/guides/tides.md"];
    assert_eq!(asked, targets.map(|target| (target.to_owned(), Some(200))));
}
