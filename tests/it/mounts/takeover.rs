//! A scan is finished by another replica when the one that scans is killed.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use sqlx::{ConnectOptions, PgConnection};
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::cluster::{Database, database};
use crate::support::process::{Site, lease_holder};
use crate::support::wait::eventually;

/// As many files as one transaction lists.
const BATCH: usize = 20_000;

/// Locks the agent, which waits for others that do.
async fn lock(connection: &mut PgConnection) {
    for statement in ["begin", "select from heads where scope = (select uid from agents) for update"] {
        sqlx::query(statement).execute(&mut *connection).await.unwrap();
    }
}

async fn unlock(mut connection: PgConnection) {
    sqlx::query("rollback").execute(&mut connection).await.unwrap();
}

/// Waits until so many statements wait for a lock.
async fn waiting(database: &Database, count: i64) {
    let statement = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("statements wait for the lock", async || database.number(statement).await == count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_of_a_killed_replica_is_finished_by_another() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    // Made before: a missing tree is looked for less and less often.
    let made = root.join("made");
    std::fs::create_dir(&made).unwrap();
    for number in 0..=BATCH {
        std::fs::write(made.join(number.to_string()), "").unwrap();
    }
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let (mut sites, mut gateways) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let site = Site::unlimited()
            .set("WAGGLE_DATABASE__URL", database.options.to_url_lossy())
            .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal())
            .set("WAGGLE_SOURCES__FILE_ROOTS", root.display());
        gateways.push(site.serve().await);
        sites.push(Arc::new(site));
    }
    let admin = async |method: &str, path: &str, body: Option<Value>| {
        for site in &sites {
            if site.is_ready().await {
                let made = site.http.admin(operator.reveal(), method, path, body).await;
                assert!(made.status.is_success(), "{}", made.text());
                return made;
            }
        }
        panic!("no replica is ready")
    };
    let mount = "/agents/notes/mounts/files";
    let status = async || {
        let status = admin("GET", mount, None).await.json();
        (status["state"].as_str().unwrap().to_owned(), status["entries"].as_u64().unwrap())
    };
    admin("POST", "/tenants", Some(json!({"id": "acme"}))).await;
    admin("POST", "/agents", Some(json!({"id": "notes", "tenant": "acme"}))).await;
    let connection = json!({"id": "docs", "kind": "file", "tenants": "*", "settings": {"root": root}});
    admin("POST", "/connections", Some(connection)).await;
    let body = json!({"connection": "docs", "path": "files/", "uri": "file:///"});
    admin("PUT", mount, Some(body)).await;
    eventually("the missing tree is scanned", async || status().await.0 == "failed").await;

    // The scan writes one transaction, then waits in the next one.
    let [mut first, mut second] = [database.connect().await, database.connect().await];
    lock(&mut first).await;
    std::fs::rename(made, root.join("files")).unwrap();
    waiting(&database, 1).await;
    let locked = tokio::spawn(async move {
        lock(&mut second).await;
        second
    });
    waiting(&database, 2).await;
    unlock(first).await;
    let second = locked.await.unwrap();
    waiting(&database, 1).await;
    assert_eq!(status().await, ("scanning".to_owned(), BATCH as u64));

    let scanning = lease_holder(&database, &sites).await.unwrap();
    gateways.remove(scanning).kill().await;
    unlock(second).await;
    let began = Instant::now();
    let all = ("ready".to_owned(), BATCH as u64 + 1);
    eventually("the other replica lists the rest", async || status().await == all).await;
    println!("listed {:?} after the kill", began.elapsed());
    let written = "select count(*) from mount_entries";
    assert_eq!(database.number(written).await, i64::try_from(BATCH).unwrap() + 1);
    let revisions = "select count(distinct revision) from mount_entries";
    assert_eq!(database.number(revisions).await, 2, "what was listed is not written again");
}
