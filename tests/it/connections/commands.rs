//! `waggle connection`.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::gateway;
use crate::apply::{output, run, waggle};

#[tokio::test(flavor = "multi_thread")]
async fn connection_is_managed_from_the_command_line() {
    let (_keys, _database, replica) = gateway().await;
    replica.tenant("acme").await;
    let folder = TempDir::new().unwrap();
    let (settings, secret) = (folder.path().join("settings.yaml"), folder.path().join("secret.json"));
    let yaml = "baseUrl: http://api.example/v1/\nheaders:\n  Accept: text/plain\n";
    fs::write(&settings, yaml).unwrap();
    fs::write(&secret, "{\"Authorization\": \"Bearer hunter2\"}\n").unwrap();
    let url = format!("http://{}/", replica.running.admin_address);
    let variables = [
        ("WAGGLE_URL", url.as_str()),
        ("WAGGLE_KEY", replica.operator.as_str()),
        ("HEADERS", r#"{"X-Key": "hunter2"}"#),
    ];
    let with_input = async |arguments: &[&str], stdin: &str| {
        run(&variables, &[&["connection"], arguments].concat(), stdin).await
    };
    let connection = async |arguments: &[&str]| with_input(arguments, "").await;
    let shown = async || replica.admin("GET", "/connections/weather", None).await.json();
    let from_file = format!("headers=file:{}", secret.display());
    let create = [
        "create",
        "weather",
        "--kind",
        "http",
        "--tenant",
        "acme",
        "--settings",
        settings.to_str().unwrap(),
        "--secret",
        &from_file,
        "--limit",
        "timeoutMs=100",
        "--enabled",
        "false",
    ];
    assert_eq!(connection(&create).await, output(0, "created connection weather\n", ""));
    let (code, table, _) = connection(&["list"]).await;
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!(code, Some(0));
    assert_eq!(rows, [["ID", "KIND", "TENANTS", "STATE"], ["weather", "http", "acme", "disabled"]]);
    let (_, printed, _) = connection(&["get", "weather", "-o", "json"]).await;
    let made = shown().await;
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), made);
    assert_eq!(
        json!([
            made["tenants"],
            made["settings"],
            made["secrets"]["headers"]["set"],
            made["limits"]["timeoutMs"]
        ]),
        json!([["acme"], {"baseUrl": "http://api.example/v1/", "headers": {"Accept": "text/plain"}}, true, 100])
    );
    let update = [
        "update",
        "weather",
        "--tenant",
        "*",
        "--enabled",
        "true",
        "--secret",
        "headers=env:HEADERS",
        "-f",
        "-",
    ];
    let body = r#"{"settings": {"baseUrl": "http://api.example/v2/"}, "enabled": false}"#;
    assert_eq!(with_input(&update, body).await, output(0, "updated connection weather\n", ""));
    let changed = shown().await;
    assert_eq!(
        json!([
            changed["tenants"],
            changed["enabled"],
            changed["settings"]["baseUrl"],
            changed["limits"]["timeoutMs"]
        ]),
        json!(["*", true, "http://api.example/v2/", 100])
    );
    assert_ne!(changed["secrets"], made["secrets"], "the secret was set again");
    let remove = ["update", "weather", "--remove-secret", "headers"];
    assert_eq!(connection(&remove).await, output(0, "updated connection weather\n", ""));
    assert_eq!(shown().await["secrets"], json!({}));
    let (code, printed, _) = connection(&["rekey"]).await;
    assert!(code == Some(0) && printed.starts_with("0 secrets were encrypted under the key "), "{printed}");
    assert_eq!(connection(&["delete", "weather"]).await, output(0, "deleted connection weather\n", ""));
    assert_eq!(connection(&["get", "weather"]).await, output(1, "", "no such connection (not_found)\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_on_the_command_line_is_refused_and_not_repeated() {
    let (_keys, _database, replica) = gateway().await;
    let create = async |secret: &str| {
        let arguments = ["connection", "create", "api", "--kind", "http", "--secret", secret];
        waggle(&replica, &replica.operator, &arguments, "").await
    };
    let expected = "--secret headers: expected env:VARIABLE or file:PATH, never the secret itself\n";
    assert_eq!(create("headers=hunter2").await, output(2, "", expected));
    assert_eq!(create("hunter2").await, output(2, "", "--secret: expected NAME=VALUE\n"));
    let missing = "--secret headers: the environment variable NONE is not set\n";
    assert_eq!(create("headers=env:NONE").await, output(2, "", missing));
    let (code, _, error) = create("headers=file:/nonexistent").await;
    assert!(code == Some(2) && error.starts_with("cannot read /nonexistent: "), "{error}");
}
