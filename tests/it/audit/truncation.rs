//! Rows that the owner of the database removes from a chain and declares expired.

use std::path::Path;

use time::{Duration, OffsetDateTime};
use waggle::model::audit::checkpoint::Checkpoint;
use waggle::model::audit::signature::{PublicKey, Signer};

use super::calls::{becomes, reaches};
use super::tampering::{findings, held_against};
use crate::support::app::{Builder, Replica};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};

/// What an owner of the database without a key does: deletes rows, enters them as dropped, hashes the entry, and
/// updates the head of the ledger. `$body` enters them.
fn cut(first: i64, last: i64, fields: &str, version: i16) -> String {
    format!(
        "set session_replication_role = replica;
        create function field(value bytea) returns bytea language sql as $$
            select case when value is null then '\\xffffffff' else int4send(length(value)) || value end
        $$;
        do $$
        declare
            number bigint := (select max(c.number) + 1 from audit_chains c);
            previous bytea := (select c.hash from audit_chains c order by c.number desc limit 1);
            chain uuid := (select r.chain from audit_log r where r.seq = 20);
            before bytea := coalesce((select r.hash from audit_log r where r.seq = {first} - 1),
                decode(repeat('00', 32), 'hex'));
            head bytea := (select r.hash from audit_log r where r.seq = {last});
            common bytea := field(int8send(number)) || field(previous) || field(timestamptz_send(now()))
                || field(textsend('dropped')) || field(uuid_send(chain)) || field(int8send({first}))
                || field(before) || field(int8send({last})) || field(head);
            cutoff date;
            days integer;
            hash bytea;
        begin
            {fields}
            hash := sha256(case when {version} = 1 then common else field(int2send({version}::smallint)) || common
                || field(date_send(cutoff)) || field(int4send(days)) || field(null) || field(null) end);
            insert into audit_chains
                (version, number, previous, at, kind, chain, first, before, last, head, cutoff, retain_days, hash)
                values ({version}, number, previous, now(), 'dropped', chain, {first}, before, {last}, head, cutoff,
                    days, hash);
            update audit_heads h set seq = number,
                    hash = (select c.hash from audit_chains c order by c.number desc limit 1)
                where h.chain = '00000000-0000-0000-0000-000000000000';
            delete from audit_log r where r.seq between {first} and {last};
        end $$"
    )
}

/// The key of a gateway, in a file.
pub(super) fn signer(folder: &Path, private: u8) -> (String, PublicKey) {
    let (file, pem) = (folder.join(format!("{private}.key")), Signer::pem(&[private; 32]));
    std::fs::write(&file, &pem).unwrap();
    (file.display().to_string(), Signer::parse(pem.as_bytes()).unwrap().public())
}

/// A chain of twenty-one rows that began this many days ago, and a checkpoint that includes twenty of them.
async fn log(days: i64, key: Option<&str>) -> (Database, Replica, Checkpoint) {
    let database = database().await;
    let clock = ManualClock::at(OffsetDateTime::now_utc() - Duration::days(days));
    let builder = Builder::new(&database).clock(clock).set("WAGGLE_AUDIT__RETAIN_DAYS", 365);
    let builder =
        key.into_iter().fold(builder, |builder, key| builder.set("WAGGLE_AUDIT__SIGNING_KEY_FILE", key));
    let replica = builder.start().await;
    for number in 0..20 {
        replica.tenant(&format!("tenant-{number}")).await;
    }
    reaches(&database, 20).await;
    let checkpoint = replica.admin("POST", "/audit/checkpoint", None).await.json();
    reaches(&database, 21).await;
    becomes(&database, "select count(*) from audit_outbox", 0).await;
    assert_eq!(findings(&database, None).await, [""; 0]);
    let checkpoint: Checkpoint = serde_json::from_value(checkpoint).unwrap();
    assert_eq!(findings(&database, Some(&checkpoint)).await, [""; 0]);
    (database, replica, checkpoint)
}

const TODAY: &str = "cutoff := current_date + 1; days := 90;";

#[tokio::test]
async fn truncation_of_an_unsigned_log_is_found_by_a_checkpoint() {
    for (fields, version, expected) in [
        ("", 1, "it does not name a retention"),
        (TODAY, 2, "its cutoff day is less than the retention of 90 days before it"),
        (
            "cutoff := current_date - 90; days := 90;",
            2,
            "its chain was opened less than the retention of 90 days before it",
        ),
        ("cutoff := current_date + 1; days := 0;", 2, "invalid retention of 0 days"),
    ] {
        let (database, _replica, checkpoint) = log(0, None).await;
        database.execute(&cut(5, 14, fields, version)).await;
        let expected = [
            format!("chain … entry 2 declares rows 5 to 14 expired: {expected}"),
            "chain … row 15: missing before it: rows 5 to 14".to_owned(),
        ];
        assert_eq!(findings(&database, Some(&checkpoint)).await, expected);
        assert_eq!(findings(&database, None).await, expected);
    }
}

#[tokio::test]
async fn truncation_behind_rows_of_the_same_age_is_found() {
    let (database, _replica, checkpoint) = log(120, None).await;
    database.execute(&cut(5, 14, "cutoff := current_date - 90; days := 90;", 2)).await;
    let expected = "chain … row 1: newer rows are declared expired, but this row remains: they were cut out";
    assert_eq!(findings(&database, Some(&checkpoint)).await, [expected]);
}

#[tokio::test]
async fn truncation_of_a_signed_log_is_found_without_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (file, key) = signer(folder.path(), 7);
    // Old enough to be dropped, from its first row on: without signatures it cannot be distinguished from a real drop.
    let cut = cut(1, 14, "cutoff := current_date - 90; days := 90;", 2);
    let (unsigned, _replica, checkpoint) = log(120, None).await;
    unsigned.execute(&cut).await;
    assert_eq!(findings(&unsigned, Some(&checkpoint)).await, [""; 0]);

    let (signed, _replica, checkpoint) = log(120, Some(&file)).await;
    assert_eq!(checkpoint.is_authentic(), Some(true));
    signed.execute(&cut).await;
    let expected = [
        "chain … entry 3 declares rows 1 to 14 expired: not signed, although earlier ledger entries are",
        "chain … row 15: missing before it: rows 1 to 14",
    ];
    assert_eq!(findings(&signed, None).await, expected);
    assert_eq!(held_against(&signed, Some(&checkpoint), &[key]).await, expected);
}
