//! Verification finds each kind of tampering.

use sqlx::{AssertSqlSafe, Executor};
use waggle::audit::verify::{Evidence, verify};
use waggle::model::audit::checkpoint::Checkpoint;
use waggle::model::audit::signature::PublicKey;
use waggle::store::audit::scan::AuditScan;

use super::calls::{becomes, reaches};
use crate::support::app::Builder;
use crate::support::cluster::{Database, database};

/// The findings of verification, without the ids of chains.
pub(super) async fn findings(database: &Database, checkpoint: Option<&Checkpoint>) -> Vec<String> {
    held_against(database, checkpoint, &[]).await
}

/// The findings of verification with these trusted keys.
pub(super) async fn held_against(
    database: &Database,
    checkpoint: Option<&Checkpoint>,
    trusted: &[PublicKey],
) -> Vec<String> {
    let mut scan = AuditScan::begin(&database.options).await.unwrap();
    let checkpoints = checkpoint.cloned().into_iter().collect();
    let evidence = Evidence { checkpoints, trusted: trusted.to_vec() };
    let report = verify(&mut scan, &evidence).await.unwrap();
    scan.end().await.unwrap();
    let nameless = |finding: &String| {
        let hidden = |word: &str| if word.trim_end_matches(':').len() == 36 { "…" } else { word }.to_owned();
        finding.split(' ').map(hidden).collect::<Vec<_>>().join(" ")
    };
    report.findings.iter().map(nameless).collect()
}

/// An independent implementation of the encoding in `docs/audit.md`.
const ENCODING: &str = "
    create function field(value bytea) returns bytea language sql as $$
        select case when value is null then '\\xffffffff' else int4send(length(value)) || value end
    $$;
    create function real_hash(r audit_log) returns bytea language sql as $$
        select sha256(field(int2send(r.version)) || field(uuid_send(r.chain)) || field(int8send(r.seq))
            || field(r.previous) || field(timestamptz_send(r.at)) || field(textsend(r.request)) || field(r.trace)
            || field(uuid_send(r.tenant)) || field(uuid_send(r.agent)) || field(textsend(r.slug))
            || field(uuid_send(r.principal)) || field(textsend(r.principal_kind)) || field(uuid_send(r.key))
            || field(textsend(r.client)) || field(textsend(r.client_name)) || field(textsend(r.client_version))
            || field(textsend(r.protocol)) || field(uuid_send(r.session)) || field(textsend(r.method))
            || field(textsend(r.subject)) || field(textsend(r.outcome)) || field(int2send(r.status))
            || field(int8send(r.micros)) || field(int8send(r.bytes_in)) || field(int8send(r.bytes_out))
            || field(int8send(r.revision)) || field(r.before) || field(r.after))
    $$;
    create table kept_log as select * from audit_log;
    create table kept_heads as select * from audit_heads;
    create table kept_chains as select * from audit_chains";

/// The owner of the database disables the triggers.
const OWNER: &str = "set session_replication_role = replica";

const RESTORE: &str = "delete from audit_log; insert into audit_log select * from kept_log;
    delete from audit_heads; insert into audit_heads select * from kept_heads;
    delete from audit_chains; insert into audit_chains select * from kept_chains";

/// Recomputes the hashes of the open chain, from its first row to its head.
const RECOMPUTE: &str = "do $$
    declare
        r audit_log;
        last bytea := decode(repeat('00', 32), 'hex');
        open uuid := (select chain from audit_chains group by chain having count(*) = 1);
    begin
        for r in select * from audit_log where chain = open order by seq loop
            r.previous := last;
            last := real_hash(r);
            update audit_log set previous = r.previous, hash = last where chain = open and seq = r.seq;
        end loop;
        update audit_heads set hash = last where chain = open;
    end $$";

/// Two chains of ten rows, one of which has ended, and a checkpoint.
async fn log() -> (Database, crate::support::app::Replica, Checkpoint) {
    let database = database().await;
    let first = Builder::new(&database).start().await;
    for number in 0..10 {
        first.tenant(&format!("first-{number}")).await;
    }
    first.running.stop().await;
    let second = Builder::new(&database).start().await;
    for number in 0..9 {
        second.tenant(&format!("second-{number}")).await;
    }
    reaches(&database, 19).await;
    let checkpoint = second.admin("POST", "/audit/checkpoint", None).await.json();
    reaches(&database, 20).await;
    becomes(&database, "select count(*) from audit_outbox", 0).await;
    database.execute(ENCODING).await;
    (database, second, serde_json::from_value(checkpoint).unwrap())
}

#[tokio::test]
async fn each_kind_of_tampering_is_found_and_named() {
    let (database, _replica, checkpoint) = log().await;
    assert_eq!(database.number("select count(*) from audit_log r where r.hash <> real_hash(r)").await, 0);
    assert_eq!(findings(&database, None).await, [""; 0]);
    assert_eq!(findings(&database, Some(&checkpoint)).await, [""; 0]);

    let closed = "(select chain from audit_chains where kind = 'closed')";
    let mut found = Vec::new();
    for (what, sql) in [
        (
            "an edited field",
            format!("update audit_log set outcome = 'ok ' where chain = {closed} and seq = 4"),
        ),
        (
            "an edited row, hashed anew",
            format!(
                "update audit_log set outcome = 'ok ' where chain = {closed} and seq = 4; \
            update audit_log r set hash = real_hash(r) where chain = {closed} and seq = 4"
            ),
        ),
        ("a deleted row", format!("delete from audit_log where chain = {closed} and seq = 4")),
        (
            "a swapped pair",
            format!("update audit_log set seq = 9 - seq where chain = {closed} and seq in (4, 5)"),
        ),
        (
            "an inserted row",
            format!(
                "create temp table t as select * from audit_log where chain = {closed} and seq = 4; \
            update t set at = at + interval '1 s', subject = 'x'; \
            insert into audit_log select * from t; update audit_log r set hash = real_hash(r) where at in (select at from t)"
            ),
        ),
        ("a truncated tail", format!("delete from audit_log where chain = {closed} and seq > 7")),
        (
            "a truncated tail with its record",
            format!(
                "delete from audit_log where chain = {closed} and seq > 7; \
            update audit_heads h set seq = 7, hash = (select hash from audit_log where chain = {closed} and seq = 7) where chain = {closed}"
            ),
        ),
        (
            "a chain cut in two",
            format!(
                "update audit_log set chain = '00000000-0000-0000-0000-00000000000c', seq = seq - 5 where chain = {closed} and seq > 5"
            ),
        ),
        (
            "a whole chain removed",
            format!(
                "create temp table gone as select {closed} as chain; \
            delete from audit_log where chain in (select chain from gone); delete from audit_heads where chain in (select chain from gone); \
            delete from audit_chains where chain in (select chain from gone)"
            ),
        ),
        ("a tail of the open chain", format!("delete from audit_log where chain <> {closed} and seq > 5")),
    ] {
        let mut connection = database.connect().await;
        connection.execute(AssertSqlSafe(format!("{OWNER}; {sql}"))).await.unwrap();
        found.push(format!("{what}: {}", findings(&database, None).await.join("; ")));
        connection.execute(AssertSqlSafe(RESTORE.to_owned())).await.unwrap();
    }
    insta::assert_snapshot!(found.join("\n"), @r"
    an edited field: chain … row 4: content does not match its hash: it was edited or moved
    an edited row, hashed anew: chain … row 5: does not follow row 4: one of the two was edited or exchanged, and rehashed
    a deleted row: chain … row 5: missing before it: row 4
    a swapped pair: chain … row 4: content does not match its hash: it was edited or moved
    an inserted row: chain … row 4: duplicate row number: it was inserted
    a truncated tail: chain … missing at its end: rows 8 to 10
    a truncated tail with its record: chain … missing at its end: rows 8 to 10
    a chain cut in two: chain … has rows, but was never opened; chain … missing at its end: rows 6 to 10
    a whole chain removed: ledger: entry 3: 2 entries before it are missing: a chain may have been removed
    a tail of the open chain: chain … missing at its end: rows 6 to 10
    ");
}

#[tokio::test]
async fn rehashed_chain_is_found_by_a_checkpoint_alone() {
    let (database, _replica, checkpoint) = log().await;
    let open = "chain = (select chain from audit_chains group by chain having count(*) = 1)";
    let edit = format!("{OWNER}; update audit_log set subject = 'x' where {open} and seq = 4; {RECOMPUTE}");
    database.execute(&edit).await;
    assert_eq!(findings(&database, None).await, [""; 0]);
    let found = findings(&database, Some(&checkpoint)).await;
    assert_eq!(found, ["chain … row 9: differs from the row in a checkpoint"]);
}
