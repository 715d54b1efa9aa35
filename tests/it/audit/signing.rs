//! Signatures of entries and checkpoints, and their keys.

use time::{Duration, OffsetDateTime};
use waggle::model::audit::checkpoint::Checkpoint;
use waggle::model::audit::signature::{PublicKey, Signer};
use waggle::model::system::Clock;
use waggle::store::Store;
use waggle::store::audit::partitions::Dropped;

use super::calls::{becomes, reaches};
use super::tampering::{findings, held_against};
use super::truncation::signer;
use crate::support::app::Builder;
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database, store_options};

/// Runs a gateway, makes a change, and stops it.
async fn live(database: &Database, name: &str, key: Option<&str>) -> Checkpoint {
    let builder = Builder::new(database);
    let builder =
        key.into_iter().fold(builder, |builder, key| builder.set("WAGGLE_AUDIT__SIGNING_KEY_FILE", key));
    let replica = builder.start().await;
    replica.tenant(name).await;
    becomes(database, "select count(*) from audit_outbox", 0).await;
    let checkpoint = replica.admin("POST", "/audit/checkpoint", None).await.json();
    replica.running.stop().await;
    serde_json::from_value(checkpoint).unwrap()
}

#[tokio::test]
async fn every_entry_is_signed_by_a_previously_entered_key() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, key) = signer(folder.path(), 1);
    let checkpoint = live(&database, "one", Some(&file)).await;
    assert_eq!(database.number("select count(*) from audit_chains where signature is null").await, 0);
    assert_eq!(database.number("select number from audit_chains where kind = 'key'").await, 1);
    live(&database, "two", Some(&file)).await;
    assert_eq!(database.number("select count(*) from audit_chains where kind = 'key'").await, 1);
    assert_eq!(held_against(&database, Some(&checkpoint), &[key]).await, [""; 0]);

    let edited = Checkpoint { at: "2026-01-01T00:00:00.000000Z".to_owned(), ..checkpoint.clone() };
    assert_eq!(
        findings(&database, Some(&edited)).await,
        ["checkpoint of 2026-01-01T00:00:00.000000Z: invalid signature"]
    );
    let unsigned = Checkpoint { signer: None, signature: None, ..edited };
    assert_eq!(
        findings(&database, Some(&unsigned)).await,
        ["checkpoint of 2026-01-01T00:00:00.000000Z: not signed, although earlier ledger entries are"]
    );
}

#[tokio::test]
async fn signature_by_an_untrusted_key_is_found() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let ((file, key), (foreign, other)) = (signer(folder.path(), 1), signer(folder.path(), 2));
    live(&database, "one", Some(&file)).await;
    let checkpoint = live(&database, "two", Some(&foreign)).await;
    // Any replica may have its own key, so only the list of trusted keys decides.
    assert_eq!(findings(&database, None).await, [""; 0]);
    assert_eq!(held_against(&database, None, &[key, other]).await, [""; 0]);
    let doubt = format!("{other} is not a trusted key, and was not entered by one");
    let entry = format!("ledger: entry 4: {doubt}");
    assert_eq!(held_against(&database, None, &[key]).await, std::slice::from_ref(&entry));
    let checkpoint_of = format!("checkpoint of {}: {doubt}", checkpoint.at);
    assert_eq!(held_against(&database, Some(&checkpoint), &[key]).await, [entry, checkpoint_of]);
}

#[tokio::test]
async fn unsigned_entry_after_a_signed_one_is_found() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, key) = signer(folder.path(), 1);
    live(&database, "one", None).await;
    // Without a key nothing is found, unless keys are trusted.
    assert_eq!(findings(&database, None).await, [""; 0]);
    let none = "ledger: no entry is signed, although trusted keys were given";
    assert_eq!(held_against(&database, None, &[key]).await, [none]);
    // A chain that began before the first key ends without a signature.
    let before = Builder::new(&database).start().await;
    live(&database, "two", Some(&file)).await;
    before.running.stop().await;
    assert_eq!(held_against(&database, None, &[key]).await, [""; 0]);
    live(&database, "three", None).await;
    let found = ["ledger: entry 8: not signed, although earlier ledger entries are"];
    assert_eq!(findings(&database, None).await, found);
}

#[tokio::test]
async fn successor_key_is_entered_by_its_predecessor() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, key) = signer(folder.path(), 1);
    live(&database, "one", Some(&file)).await;
    let both = folder.path().join("both.key");
    std::fs::write(&both, Signer::pem(&[2; 32]) + &Signer::pem(&[1; 32])).unwrap();
    let checkpoint = live(&database, "two", Some(both.to_str().unwrap())).await;
    assert_eq!(held_against(&database, Some(&checkpoint), &[key]).await, [""; 0]);
    let successor: PublicKey = checkpoint.signer.unwrap();
    assert_ne!(successor, key);
    // The predecessor no longer signs.
    live(&database, "three", Some(&file)).await;
    let found = [format!("ledger: entry 7: signed by {key}, a key that entry 4 replaced")];
    assert_eq!(held_against(&database, None, &[key]).await, found);
}

#[tokio::test]
async fn edited_signature_or_entry_is_found() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, _) = signer(folder.path(), 1);
    live(&database, "one", Some(&file)).await;
    let owner = "set session_replication_role = replica";
    database
        .execute(&format!(
            "{owner}; update audit_chains set signature = set_byte(signature, 5, 0) where number = 2"
        ))
        .await;
    let found = ["ledger: entry 2: invalid signature"];
    assert_eq!(findings(&database, None).await, found);
}

#[tokio::test]
async fn partition_drops_are_signed_and_wait_for_a_key() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let (file, key) = signer(folder.path(), 1);
    let clock = ManualClock::at(OffsetDateTime::now_utc() - Duration::days(120));
    let start = async || {
        let builder = Builder::new(&database).clock(clock.clone());
        builder.set("WAGGLE_AUDIT__SIGNING_KEY_FILE", &file).start().await
    };
    let replica = start().await;
    replica.tenant("old").await;
    reaches(&database, 1).await;
    replica.running.stop().await;
    clock.advance(Duration::days(100));
    let store = Store::new(store_options(database.options.clone()));
    let mut keyless = store.owned_audit_log(std::time::Duration::from_secs(30), None);
    assert_eq!(keyless.drop_old(90, clock.now()).await.unwrap(), Dropped::Unsigned);
    assert_eq!(database.number("select count(*) from audit_log").await, 1);
    let keyed = start().await;
    becomes(&database, "select count(*) from audit_log", 0).await;
    keyed.running.stop().await;
    let dropped = "select count(*) from audit_chains where kind = 'dropped' and signature is not null \
        and retain_days = 90 and cutoff <= at::date - 90";
    assert_eq!(database.number(dropped).await, 1);
    assert_eq!(held_against(&database, None, &[key]).await, [""; 0]);
}
