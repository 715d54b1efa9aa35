//! Scheduled checkpoints.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use waggle::model::audit::checkpoint::Checkpoint;
use waggle::store::Store;

use super::tampering::{findings, held_against};
use super::truncation::signer;
use crate::support::app::Builder;
use crate::support::cluster::{database, store_options};
use crate::support::wait::{DEADLINE, eventually};

/// Whether a checkpoint was written: it is recorded afterwards.
const RECORDED: &str = "select count(*) from audit_checkpoints where made > '-infinity'";

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".json"));
    names.sort();
    names
}

#[tokio::test]
async fn checkpoint_is_written_to_a_new_file_in_the_directory() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, key) = signer(folder.path(), 1);
    let outside = folder.path().join("checkpoints");
    let start = async || {
        let builder = Builder::new(&database).set("WAGGLE_AUDIT__CHECKPOINT_TO", outside.display());
        builder.set("WAGGLE_AUDIT__SIGNING_KEY_FILE", &file).start().await
    };
    let first = start().await;
    eventually("a checkpoint is written", async || files(&outside).len() == 1).await;
    first.tenant("acme").await;
    first.running.stop().await;
    database.execute("update audit_checkpoints set made = made - interval '61 minutes'").await;
    let second = start().await;
    eventually("another one is written", async || files(&outside).len() == 2).await;
    second.running.stop().await;
    for name in files(&outside) {
        let checkpoint = std::fs::read(outside.join(name)).unwrap();
        let checkpoint: Checkpoint = serde_json::from_slice(&checkpoint).unwrap();
        assert_eq!(held_against(&database, Some(&checkpoint), &[key]).await, [""; 0]);
    }
}

#[tokio::test]
async fn checkpoint_is_due_after_the_minutes_of_the_setting() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let outside = folder.path().join("checkpoints");
    let start = || {
        let builder = Builder::new(&database).set("WAGGLE_AUDIT__CHECKPOINT_TO", outside.display());
        builder.set("WAGGLE_AUDIT__CHECKPOINT_MINUTES", 5).start()
    };
    let first = start().await;
    super::calls::becomes(&database, RECORDED, 1).await;
    assert_eq!(files(&outside).len(), 1);
    first.running.stop().await;
    database.execute("update audit_checkpoints set made = made - interval '6 minutes'").await;
    let _second = start().await;
    eventually("another one is written", async || files(&outside).len() == 2).await;
}

#[tokio::test]
async fn due_checkpoint_is_written_by_one_replica() {
    let database = database().await;
    let store = Store::new(store_options(database.options.clone()));
    let hour = Duration::from_hours(1);
    let leases = futures_util::future::join_all((0..8).map(|_| store.lease_checkpoint(hour))).await;
    assert_eq!(leases.into_iter().filter(|leased| *leased.as_ref().unwrap()).count(), 1);
    // The replica that had the lease terminated.
    database.execute("update audit_checkpoints set leased = leased - interval '61 seconds'").await;
    assert!(store.lease_checkpoint(hour).await.unwrap());
    store.record_checkpoint().await.unwrap();
    assert!(!store.lease_checkpoint(hour).await.unwrap());
    database.execute("update audit_checkpoints set made = made - interval '61 minutes'").await;
    assert!(store.lease_checkpoint(hour).await.unwrap());
    store.close().await;
}

#[tokio::test]
async fn checkpoint_is_sent_to_a_url() {
    let database = database().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/worm/?sig=a", listener.local_addr().unwrap());
    let replica = Builder::new(&database).set("WAGGLE_AUDIT__CHECKPOINT_TO", address).start().await;
    let receive = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}\n") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(request).unwrap()
    };
    let request = tokio::time::timeout(DEADLINE, receive).await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("PUT /worm/waggle-audit-2"), "{head}");
    assert!(head.contains(".json?sig=a HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nif-none-match: *\r\n"), "{head}");
    let checkpoint: Checkpoint = serde_json::from_str(body).unwrap();
    assert_eq!(findings(&database, Some(&checkpoint)).await, [""; 0]);
    super::calls::becomes(&database, RECORDED, 1).await;
    replica.running.stop().await;
}
