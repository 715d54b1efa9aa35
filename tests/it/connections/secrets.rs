//! The secrets of connections: encrypted at rest, under keys that are replaced while the gateway serves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Keys, gateway, http};
use crate::sourced::upstream::{Upstream, text};
use crate::support::answers::{normalized, problem};
use crate::support::app::{Replica, resource};
use crate::support::cluster::database;
use crate::support::process::Site;
use crate::support::wait::eventually;
use crate::support::webhook::Message;

const SECRET: &str = "hunter2-correct-horse";

fn secretive(id: &str) -> Value {
    let mut new = http(id);
    new["secrets"] = json!({"headers": {"Authorization": SECRET}});
    new
}

async fn rekey(replica: &Replica) -> Value {
    normalized(&replica.admin("POST", "/connection-secrets/rekey", None).await)
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let (_keys, _database, replica) = gateway().await;
    let made = replica.admin("POST", "/connections", Some(secretive("api"))).await;
    assert_eq!(made.status, 201);
    assert!(!made.text().contains(SECRET), "{}", made.text());
    for path in ["/connections", "/connections/api"] {
        let shown = replica.admin("GET", path, None).await.text();
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[tokio::test]
async fn rekey_encrypts_all_secrets_under_the_first_key() {
    let (keys, database, replica) = gateway().await;
    for id in ["a", "b"] {
        replica.admin("POST", "/connections", Some(secretive(id))).await;
    }
    let before = replica.admin("GET", "/connections", None).await.text();
    keys.write(&[2, 1]);
    let rekeyed = rekey(&replica).await;
    assert_eq!((&rekeyed["status"], &rekeyed["body"]["secrets"]), (&json!(200), &json!(2)));
    let again = rekey(&replica).await;
    assert_eq!((&again["body"]["secrets"], &again["body"]["keyId"]), (&json!(0), &rekeyed["body"]["keyId"]));
    assert_eq!(replica.admin("GET", "/connections", None).await.text(), before, "nothing else has changed");
    keys.write(&[2]);
    let change = json!({"secrets": {"headers": {"Authorization": "other"}}});
    assert_eq!(replica.admin("PATCH", "/connections/a", Some(change)).await.status, 200);
    keys.replica(&database).start().await;
}

#[tokio::test]
async fn rekey_without_the_old_key_changes_nothing() {
    let (keys, database, replica) = gateway().await;
    replica.admin("POST", "/connections", Some(secretive("a"))).await;
    let sealed =
        "select ('x' || left(md5(string_agg(s::text, ' ')), 15))::bit(60)::bigint from connection_secrets s";
    let before = database.number(sealed).await;
    keys.write(&[2]);
    let refused = rekey(&replica).await;
    let detail = refused["body"]["detail"].as_str().unwrap().to_owned();
    assert_eq!(refused, problem(400, "invalid_params", &detail));
    let file = keys.file();
    assert!(
        detail.starts_with(&format!("secrets: sources.key_file: {} does not hold the key ", file.display()))
    );
    assert!(detail.ends_with(
        ", which the secret headers of the connection a is encrypted under; add that key to the file"
    ));
    assert_eq!(database.number(sealed).await, before);
    keys.write(&[2, 1]);
    assert_eq!(rekey(&replica).await["body"]["secrets"], 1);
}

#[tokio::test]
async fn secrets_are_written_and_rekeyed_concurrently() {
    let (keys, database, replica) = gateway().await;
    for id in ["a", "b", "c"] {
        replica.admin("POST", "/connections", Some(secretive(id))).await;
    }
    let write = async |id: &str| {
        for round in 0..20 {
            let change = json!({"secrets": {"headers": {"Authorization": format!("{SECRET}-{round}")}}});
            let answer = replica.admin("PATCH", &format!("/connections/{id}"), Some(change)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    let replace = async || {
        for (old, new) in (1..6).zip(2..) {
            keys.write(&[new, old]);
            assert_eq!(rekey(&replica).await["status"], 200);
            // The interval at which keys are replaced.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    futures_util::join!(write("a"), write("b"), replace());
    // A write that read the file before the last key was added may have used the one before.
    rekey(&replica).await;
    keys.write(&[6]);
    keys.replica(&database).start().await;
    assert_eq!(rekey(&replica).await["body"]["secrets"], 0, "all are encrypted under the newest key");
}

#[tokio::test]
async fn rekey_disturbs_neither_reads_nor_writes_nor_hooks() {
    let (keys, database) = (Keys::new(), database().await);
    let replicas = [keys.replica(&database).start().await, keys.replica(&database).start().await];
    let (upstream, [writer, reader]) = (Upstream::start().await, &replicas);
    upstream.answer("a", text("content"));
    let mut new = secretive("api");
    new["settings"] = json!({"baseUrl": upstream.url(), "allowNetworks": ["127.0.0.0/8"]});
    new["limits"] = json!({"perSecond": 100_000, "burst": 100_000});
    assert_eq!(writer.admin("POST", "/connections", Some(new)).await.status, 201);
    let key = writer.acme("notes").await;
    let body = json!({"name": "a", "source": {"connection": "api", "path": "a", "ttlMs": 0}});
    assert_eq!(writer.admin("PUT", &resource("notes", "test://a"), Some(body)).await.status, 201);
    reader.caught_up().await;
    let done = AtomicBool::new(false);
    let [reads, others, writes] = [const { AtomicUsize::new(0) }; 3];
    let read = async |replica: &Replica, count: &AtomicUsize| {
        while !done.load(Ordering::Relaxed) {
            assert_eq!(replica.http.text("notes", &key, "test://a").await.as_deref(), Some("content"));
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let write = async || {
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            // The connection is built again from its secrets, and one of them is written.
            let limits = json!({"limits": {"timeoutMs": 5_000 + round}});
            assert_eq!(writer.admin("PATCH", "/connections/api", Some(limits)).await.status, 200);
            let headers = json!({"secrets": {"headers": {"Authorization": format!("{SECRET}-{round}")}}});
            assert_eq!(reader.admin("PATCH", "/connections/api", Some(headers)).await.status, 200);
            round += 1;
            writes.fetch_add(1, Ordering::Relaxed);
        }
    };
    let replace = async || {
        for newest in 2..10 {
            // A write that read the file before may use any older one.
            keys.write(&(1..=newest).rev().collect::<Vec<_>>());
            assert_eq!(rekey(writer).await["status"], 200);
            // The interval at which keys are replaced.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let gone_on = |count: &AtomicUsize, least| count.load(Ordering::Relaxed) > least;
        let all = async || gone_on(&reads, 20) && gone_on(&others, 20) && gone_on(&writes, 5);
        eventually("reads and writes go on", all).await;
        done.store(true, Ordering::Relaxed);
    };
    // Hooks are created, and those that exist receive messages.
    let deliver = async || {
        let (mut hooks, mut count) = (Vec::new(), 0);
        while !done.load(Ordering::Relaxed) {
            if hooks.len() < 20 {
                let made =
                    writer.admin("POST", "/agents/notes/hooks", Some(json!({"uris": ["test://a"]}))).await;
                assert_eq!(made.status, 201, "{}", made.text());
                hooks.push(["id", "secret"].map(|member| made.json()[member].as_str().unwrap().to_owned()));
            }
            for [id, secret] in &hooks {
                let sent = Message::new(&format!("message-{count}")).send(reader, id, secret).await;
                assert_eq!(sent.status, 202, "{}", sent.text());
                count += 1;
            }
        }
        hooks
    };
    let ((), (), (), hooks, ()) =
        futures_util::join!(read(writer, &reads), read(reader, &others), write(), deliver(), replace());
    assert!(hooks.len() > 1, "{}", hooks.len());
    rekey(writer).await;
    keys.write(&[9]);
    assert_eq!(rekey(reader).await["body"]["secrets"], 0, "all are encrypted under the newest key");
    for [id, secret] in &hooks {
        assert_eq!(Message::new("last").send(writer, id, secret).await.status, 202);
    }
}

#[tokio::test]
async fn embedded_gateway_creates_its_key_once_and_refuses_another() {
    let site = Site::unlimited();
    let gateway = site.serve().await;
    let file = site.folder.data_dir().join("sources.key");
    let key = std::fs::read_to_string(&file).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let made = site.admin("POST", "/connections", Some(secretive("api"))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(gateway.stop().await.success());
    let gateway = site.serve().await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), key);
    assert!(gateway.stop().await.success());
    assert!(!(site.printed("stdout") + &site.printed("stderr")).contains(SECRET));

    let started = async || {
        let output = site.command("serve").output().await.unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let named = file.display();
    Keys::write_to(&file, &[9]);
    let wrong = started().await;
    assert!(wrong.contains(&format!("sources.key_file: {named} does not hold the key ")), "{wrong}");
    assert!(wrong.contains("which the secret headers of the connection api is encrypted under"), "{wrong}");
    std::fs::write(&file, "hunter2\n").unwrap();
    let malformed = started().await;
    assert!(malformed.contains(&format!("sources.key_file: {named}:1: not a key")), "{malformed}");
    assert!(!malformed.contains("hunter2"), "{malformed}");
    std::fs::remove_file(&file).unwrap();
    let missing = started().await;
    assert!(missing.contains(&format!("sources.key_file: {named}: No such file")), "{missing}");
    assert!(!file.exists(), "a new key would hide that the old one is lost");

    std::fs::write(&file, &key).unwrap();
    let gateway = site.serve().await;
    let shown = site.admin("GET", "/connections/api", None).await.json();
    assert_eq!(shown["secrets"]["headers"]["set"], true);
    assert!(gateway.stop().await.success());
}

#[tokio::test]
async fn gateway_without_the_key_of_a_secret_does_not_start() {
    let (keys, database) = (Keys::new(), database().await);
    let replica = keys.replica(&database).start().await;
    replica.admin("POST", "/connections", Some(secretive("api"))).await;
    let refused = crate::support::app::Builder::new(&database).refused().await;
    assert!(refused.starts_with("sources.key_file is not set"), "{refused}");
    keys.write(&[2]);
    let refused = keys.replica(&database).refused().await;
    assert!(refused.contains("does not hold the key"), "{refused}");
}
