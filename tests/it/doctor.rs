//! `waggle doctor`: what it finds, and its exit code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::StatusCode;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use sqlx::ConnectOptions;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

const OPERATOR_KEY: &str = "wag_00000000000000000000000000000000000000000003NxIRP";

/// Runs it in a folder; returns the exit code, standard error, and each check with its status and message.
async fn doctor(
    folder: &Path,
    variables: &[(&str, &str)],
) -> (Option<i32>, String, Vec<(String, String, String)>) {
    let output = Command::new(env!("CARGO_BIN_EXE_waggle"))
        .current_dir(folder)
        .env_clear()
        .env("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY)
        .envs(variables.iter().copied())
        .args(["doctor", "--json"])
        .output()
        .await
        .unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = found["checks"].as_array().unwrap();
    let checks =
        checks.iter().map(|it| (text(&it["check"]), text(&it["status"]), text(&it["message"]))).collect();
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), checks)
}

fn status_of<'a>(checks: &'a [(String, String, String)], name: &str) -> (&'a str, &'a str) {
    let found = checks.iter().find(|(check, ..)| check == name);
    found
        .map(|(_, status, message)| (status.as_str(), message.as_str()))
        .unwrap_or_else(|| panic!("{name}: {checks:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn running_gateway_and_its_database_are_found_healthy() {
    let (database, replica) = gateway().await;
    let folder = TempDir::new().unwrap();
    let listen = replica.running.address.to_string();
    let url = database.options.to_url_lossy().to_string();
    let variables = [("DATABASE_URL", url.as_str()), ("WAGGLE_SERVER__LISTEN", &listen)];
    let (code, error, checks) = doctor(folder.path(), &variables).await;
    assert_eq!((code, error.as_str()), (Some(0), ""), "{checks:?}");
    assert_eq!(status_of(&checks, "gateway"), ("ok", format!("ready at {listen}").as_str()));
    assert_eq!(status_of(&checks, "server.public_url"), ("ok", format!("http://{listen} answers").as_str()));
    assert_eq!(status_of(&checks, "database schema"), ("ok", "current"));
    let (feed, proven) = status_of(&checks, "change feed");
    assert!(["ok", "warn"].contains(&feed) && proven.starts_with("proven current "), "{proven}");
    assert_eq!(status_of(&checks, "database replicas"), ("ok", "1 listening for changes"));
    for name in ["settings", "database", "database clock"] {
        assert_eq!(status_of(&checks, name).0, "ok", "{checks:?}");
    }
    // How fast it is depends on the load of the machine.
    let (_, notified) = status_of(&checks, "database notifications");
    assert!(notified.starts_with("LISTEN receives a NOTIFY after "), "{checks:?}");
    assert!(checks.iter().any(|(check, ..)| check == "database role"));
}

#[tokio::test(flavor = "multi_thread")]
async fn running_gateway_with_another_database_is_noticed() {
    let (_database, replica) = gateway().await;
    let folder = TempDir::new().unwrap();
    let listen = replica.running.address.to_string();
    // The settings name no database, and the folder has no embedded one.
    let (_, _, checks) = doctor(folder.path(), &[("WAGGLE_SERVER__LISTEN", &listen)]).await;
    assert_eq!(status_of(&checks, "gateway").0, "ok");
    let (status, message) = status_of(&checks, "database");
    assert!(status == "warn" && message.contains("waggle-data"), "{checks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_emptied_under_a_gateway_is_not_to_be_migrated() {
    let (database, replica) = gateway().await;
    database.execute("drop schema public cascade").await;
    database.execute("create schema public").await;
    let folder = TempDir::new().unwrap();
    let listen = replica.running.address.to_string();
    let url = database.options.to_url_lossy().to_string();
    let variables = [("DATABASE_URL", url.as_str()), ("WAGGLE_SERVER__LISTEN", &listen)];
    let (code, _, checks) = doctor(folder.path(), &variables).await;
    let (status, message) = status_of(&checks, "database schema");
    assert_eq!((code, status), (Some(1), "fail"), "{checks:?}");
    assert!(message.ends_with("it was emptied, or is being restored"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_refuse_writes_are_found() {
    let database = database().await;
    let folder = TempDir::new().unwrap();
    let mut url = database.options.to_url_lossy();
    url.query_pairs_mut().append_pair("options[default_transaction_read_only]", "on");
    let url = url.to_string();
    let variables = [("DATABASE_URL", url.as_str()), ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0")];
    let (code, _, checks) = doctor(folder.path(), &variables).await;
    let (status, message) = status_of(&checks, "database");
    assert_eq!((code, status), (Some(1), "fail"), "{checks:?}");
    assert!(message.starts_with("default_transaction_read_only is on for "), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_program_at_the_port_is_no_gateway() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = listener.local_addr().unwrap().to_string();
    // It answers 404 to everything.
    let server = tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
    let folder = TempDir::new().unwrap();
    let variables = [("DATABASE_URL", "postgres://127.0.0.1:1/x"), ("WAGGLE_SERVER__LISTEN", &listen)];
    let (code, _, checks) = doctor(folder.path(), &variables).await;
    let expected = format!("{listen} is in use by another program");
    assert_eq!((code, status_of(&checks, "gateway")), (Some(1), ("fail", expected.as_str())));
    let url = status_of(&checks, "server.public_url");
    assert!(url.1.contains("not requested"), "{url:?}");
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_database_fails() {
    let folder = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap().to_string();
    // Nothing listens on the port of a closed listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://waggle:hunter2@{closed}/books");
    drop(listener);
    let (code, error, checks) =
        doctor(folder.path(), &[("DATABASE_URL", &url), ("WAGGLE_SERVER__LISTEN", &listen)]).await;
    assert_eq!((code, error.as_str()), (Some(1), "a check failed\n"));
    let (status, message) = status_of(&checks, "database");
    let named = message.contains(&closed.to_string()) && message.contains("Connection refused");
    assert!(status == "fail" && named, "{message}");
    assert!(checks.iter().all(|(.., message)| !message.contains("hunter2")), "{checks:?}");
    assert_eq!(status_of(&checks, "gateway").0, "ok");
    // No directory is set, and the free space belongs to the same line.
    let spill: Vec<_> = checks.iter().filter(|(check, ..)| check == "audit.spill_dir").collect();
    assert!(spill.len() == 1 && spill[0].2.contains(" MiB free for "), "{spill:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_the_administration_api_that_is_in_use_fails() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // It accepts no connection, so it is asked for as long as a check may take.
    let variables = [
        ("DATABASE_URL", "postgres://127.0.0.1:1/x"),
        ("WAGGLE_SERVER__LISTEN", free.as_str()),
        ("WAGGLE_ADMIN__LISTEN", taken.as_str()),
    ];
    let folder = TempDir::new().unwrap();
    let (code, _, checks) = doctor(folder.path(), &variables).await;
    let expected = format!("{taken} is in use by another program");
    assert_eq!((code, status_of(&checks, "admin.listen")), (Some(1), ("fail", expected.as_str())));
    drop(other);

    // Beside the gateway that listens there, it is as it should be; before the gateway of other settings, it is not.
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_ADMIN__LISTEN", "127.0.0.1:0").start().await;
    let (listen, admin) = (replica.running.address.to_string(), replica.running.admin_address.to_string());
    let url = database.options.to_url_lossy().to_string();
    for (listen, fails) in [(&listen, false), (&free, true)] {
        let variables = [
            ("DATABASE_URL", url.as_str()),
            ("WAGGLE_SERVER__LISTEN", listen),
            ("WAGGLE_ADMIN__LISTEN", &admin),
        ];
        let (_, _, checks) = doctor(folder.path(), &variables).await;
        let found: Vec<_> = checks.iter().filter(|(check, ..)| check == "admin.listen").collect();
        let expected = format!("{admin} is in use by a running gateway");
        assert_eq!(found.iter().any(|(_, status, message)| status == "fail" && *message == expected), fails);
        assert_eq!(found.len(), usize::from(fails), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_of_a_gateway_that_is_not_ready_are_named() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let builder = Builder::new(&database).set("WAGGLE_ACCESS__STALE_SECONDS", 1);
    let through_proxy = builder.store(|store| {
        store.connect = proxy.options.clone();
        store.listen = proxy.options.clone();
    });
    let replica = through_proxy.start().await;
    proxy.swallow(true);
    let is_unready = async || replica.http.get("/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE;
    eventually("the gateway is not ready", is_unready).await;
    let (listen, url) = (replica.running.address.to_string(), database.options.to_url_lossy().to_string());
    let variables = [("DATABASE_URL", url.as_str()), ("WAGGLE_SERVER__LISTEN", listen.as_str())];
    let (code, _, checks) = doctor(TempDir::new().unwrap().path(), &variables).await;
    let (status, message) = status_of(&checks, "gateway");
    let named =
        message.starts_with(&format!("not ready at {listen}: ")) && message.contains("memory_expired");
    assert!(code == Some(1) && status == "fail" && named, "{message}");
}

/// What `waggle serve --check`, which refuses to start, prints.
async fn refused_start(listen: &str, url: &str) -> String {
    let folder = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_waggle"))
        .current_dir(folder.path())
        .env_clear()
        .env("WAGGLE_ADMIN__OPERATOR_KEY", OPERATOR_KEY)
        .env("WAGGLE_SERVER__LISTEN", listen)
        .env("DATABASE_URL", url)
        .args(["serve", "--check"])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{error}");
    assert!(error.ends_with("\na check failed\n"), "{error}");
    error
}

/// The lines of checks that failed, with one space between words.
fn failed(printed: &str) -> Vec<String> {
    let lines = printed.lines().filter(|line| line.starts_with("fail "));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_a_failing_check_is_refused() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refused_start(&closed.to_string(), &format!("postgres://waggle@{closed}/books")).await;
    assert!(error.contains("\nfail  database "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_at_an_address_in_use_is_refused() {
    let (database, replica) = gateway().await;
    let url = database.options.to_url_lossy().to_string();
    let listen = replica.running.address.to_string();
    let remedy = "stop what listens there, or change the setting";
    // A gateway with these settings, beside which waggle doctor finds nothing wrong.
    let error = refused_start(&listen, &url).await;
    let expected = format!("fail server.listen {listen} is in use by a running gateway; {remedy}");
    assert_eq!(failed(&error), [expected], "{error}");
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = other.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move { axum::serve(other, axum::Router::new()).await });
    let error = refused_start(&listen, &url).await;
    let expected = format!(
        "fail gateway {listen} is in use by another program; stop that program or change server.listen"
    );
    assert_eq!(failed(&error), [expected], "{error}");
    server.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn readable_secrets_and_expired_certificates_are_reported() {
    let database = database().await;
    let folder = TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let write = |name: &str, text: String, mode: u32| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let certificate = write("tls.pem", params.self_signed(&key).unwrap().pem(), 0o644);
    let key = write("tls.key", key.serialize_pem(), 0o600);
    let operators = write("operator.key", format!("{OPERATOR_KEY}\n"), 0o644);
    let url = database.options.to_url_lossy().to_string();
    let variables = [
        ("DATABASE_URL", url.as_str()),
        ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0"),
        ("WAGGLE_SERVER__TLS_CERTIFICATE", &certificate),
        ("WAGGLE_SERVER__TLS_KEY", &key),
        ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", &operators),
    ];
    let (code, error, checks) = doctor(folder.path(), &variables).await;
    assert_eq!((code, error.as_str()), (Some(1), "a check failed\n"), "{checks:?}");
    let expired = format!("{certificate} has expired");
    assert_eq!(status_of(&checks, "server.tls_certificate"), ("fail", expired.as_str()));
    let readable = format!("{operators} has the mode 0644");
    assert_eq!(status_of(&checks, "admin.operator_keys_file"), ("warn", readable.as_str()));
    assert_eq!(status_of(&checks, "server.tls_key").0, "ok");
}
