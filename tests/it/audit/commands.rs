//! `waggle audit tail` and `waggle audit export`, run as processes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::calls::reaches;
use crate::support::app::{Replica, gateway};
use crate::support::cluster::Database;
use crate::support::wait::DEADLINE;

/// So many rows that reading them takes noticeable time.
const MANY: i64 = 20_000;
const READS: [&str; 2] = ["--method", "resources/read"];

/// `waggle audit` with these arguments.
fn audit(replica: &Replica, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_waggle"))
        .env_clear()
        .env("WAGGLE_URL", format!("http://{}/", replica.running.admin_address))
        .env("WAGGLE_KEY", &replica.operator)
        .arg("audit")
        .args(arguments)
        .args(READS)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The standard output of a command that succeeds without errors.
async fn printed(replica: &Replica, arguments: &[&str]) -> String {
    let output = audit(replica, arguments).wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert_eq!((output.status.code(), text(output.stderr)), (Some(0), String::new()));
    text(output.stdout)
}

/// A gateway whose log has this many rows of reads, and a key of its agent.
async fn log(reads: i64) -> (Database, Replica, String) {
    let (database, replica) = gateway().await;
    let key = replica.acme("research").await;
    replica.put("research", "test://a", "a").await;
    for _ in 0..reads {
        replica.http.text("research", &key, "test://a").await.unwrap();
    }
    reaches(&database, 4 + reads).await;
    (database, replica, key)
}

/// The rows of reads as the API returns them, newest first.
async fn rows(replica: &Replica) -> Vec<Value> {
    let page = replica.admin("GET", "/audit?method=resources%2Fread&limit=500", None).await.json();
    page["items"].as_array().unwrap().clone()
}

fn lines<'a>(rows: impl IntoIterator<Item = &'a Value>) -> String {
    rows.into_iter().map(|row| format!("{row}\n")).collect()
}

/// As in the CSV, where nothing needs quotes.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn audit_log_is_exported_as_ndjson_and_csv() {
    let (_database, replica, _) = log(7).await;
    let rows = rows(&replica).await;
    assert_eq!(rows.len(), 7);
    assert_eq!(printed(&replica, &["export"]).await, lines(&rows));
    assert_eq!(printed(&replica, &["export", "--format", "ndjson"]).await, lines(&rows));
    let columns = "version,chain,seq,previous,at,requestId,traceId,tenantId,agentId,agent,principalId,principal,keyId,\
        client,clientName,clientVersion,protocolVersion,sessionId,method,subject,outcome,status,micros,bytesIn,bytesOut,\
        revision,before,after,connection,hash";
    let mut expected = format!("{columns}\r\n");
    for row in &rows {
        let cells: Vec<_> = columns.split(',').map(|column| cell(&row[column])).collect();
        expected += &format!("{}\r\n", cells.join(","));
    }
    assert_eq!(printed(&replica, &["export", "--format", "csv"]).await, expected);
}

#[tokio::test]
async fn audit_tail_prints_the_newest_rows_then_follows() {
    let (database, replica, key) = log(7).await;
    let all = rows(&replica).await;
    assert_eq!(
        printed(&replica, &["tail", "--lines", "3", "-o", "json"]).await,
        lines(all[..3].iter().rev())
    );

    let mut child = audit(&replica, &["tail", "-f", "--lines", "3", "-o", "json"]);
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(DEADLINE, output.next_line()).await.unwrap();
        line.unwrap().unwrap() + "\n"
    };
    for row in all[..3].iter().rev() {
        assert_eq!(next().await, lines([row]));
    }
    for number in 0..2 {
        replica.http.text("research", &key, "test://a").await.unwrap();
        becomes(&database, 8 + number).await;
        assert_eq!(next().await, lines(&rows(&replica).await[..1]));
    }
    // The command ends when its reader closes the pipe.
    drop(output);
    replica.http.text("research", &key, "test://a").await.unwrap();
    assert_eq!(ended(&mut child).await, (Some(0), String::new()));
}

#[tokio::test]
async fn audit_tail_prints_a_table_of_the_requests_that_are_asked_for() {
    let (_database, replica, _) = log(2).await;
    let rows = rows(&replica).await;
    let id = rows[1]["requestId"].as_str().unwrap();
    let table = printed(&replica, &["tail", "--request", id]).await;
    let lines: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = ["AT", "STATUS", "OUTCOME", "METHOD", "AGENT", "SUBJECT", "KEY", "CLIENT", "REQUEST"];
    let key = &rows[1]["keyId"].as_str().unwrap()[..13];
    let at = rows[1]["at"].as_str().unwrap();
    let row = [at, "200", "ok", "resources/read", "research", "test://a", key, "127.0.0.1", id];
    assert_eq!(lines, [heading, row]);
    // Columns begin at the same place.
    let starts = |line: &str, word: &str| line.find(word).unwrap();
    let both: Vec<_> = table.lines().collect();
    for (heading, cell) in heading.into_iter().zip(row) {
        assert_eq!(starts(both[0], heading), starts(both[1], cell), "{table}");
    }
    assert_eq!(printed(&replica, &["export", "--request", id]).await, self::lines([&rows[1]]));
}

/// Waits until this many reads are in the log.
async fn becomes(database: &Database, reads: i64) {
    let query = "select count(*) from audit_log where method = 'resources/read'";
    super::calls::becomes(database, query, reads).await;
}

/// The exit code of a command that ends without a signal, and its standard error.
async fn ended(child: &mut Child) -> (Option<i32>, String) {
    let status = tokio::time::timeout(DEADLINE, child.wait()).await.unwrap().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    (status.code(), stderr)
}

#[tokio::test]
async fn following_the_log_adds_one_row_that_is_not_printed() {
    let (database, replica) = gateway().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_waggle"))
        .env_clear()
        .env("WAGGLE_URL", format!("http://{}/", replica.running.admin_address))
        .env("WAGGLE_KEY", &replica.operator)
        .args(["audit", "tail", "-f", "-o", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let reads = "select count(*) from audit_log where method = 'GET /admin/v1/audit'";
    super::calls::becomes(&database, reads, 1).await;
    // Each is printed by a different poll.
    for name in ["one", "two", "three"] {
        replica.tenant(name).await;
        let line = tokio::time::timeout(DEADLINE, printed.next_line()).await.unwrap().unwrap().unwrap();
        let row: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&row["method"], &row["subject"]), (&"POST /admin/v1/tenants".into(), &name.into()));
    }
    assert_eq!(database.number(reads).await, 1);
}

#[tokio::test]
async fn export_ends_when_its_reader_closes_the_pipe() {
    let (database, replica, _) = log(1).await;
    let copies = format!(
        "create temp table one as select * from audit_log where method = 'resources/read'; \
        update one set chain = gen_random_uuid(), at = at - interval '1 s'; \
        insert into audit_log select (jsonb_populate_record(r, jsonb_build_object('seq', n))).* \
            from one r, generate_series(1, {MANY}) n"
    );
    database.execute(&copies).await;
    let began = Instant::now();
    let whole = printed(&replica, &["export"]).await;
    let took = began.elapsed();
    assert_eq!(whole.lines().count(), usize::try_from(MANY).unwrap() + 1);

    let mut child = audit(&replica, &["export"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = out.next_line().await.unwrap();
    assert_eq!(first.as_deref(), whole.lines().next());
    drop(out);
    let began = Instant::now();
    assert_eq!(ended(&mut child).await, (Some(0), String::new()));
    println!("{took:?} for all, {:?} to end", began.elapsed());
    assert!(began.elapsed() < took / 4 + Duration::from_millis(20), "{:?} of {took:?}", began.elapsed());
}
