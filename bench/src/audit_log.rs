//! `audit-log`: what a row of the audit log costs in PostgreSQL, and what it takes to verify a large log.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::audit_lag::{self, Lag};
use crate::closed_loop::{End, Requests};
use crate::error::Error;
use crate::population::{self, Group};
use crate::process::Process;
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::{http, metrics, svg, waggle};

/// The most messages that one batch may have.
const BATCH: usize = 50;
const AGENTS: usize = 1_000;
/// An answer is sent when its row is in the database, and no row takes the way through the spill file.
const WRITING: [(&str, &str); 2] =
    [("WAGGLE_AUDIT__DURABILITY", "sync"), ("WAGGLE_AUDIT__PATIENCE_MS", "60000")];
/// The timeout until all rows are in the log.
const WRITTEN: Duration = Duration::from_mins(2);
const VERIFIED: Duration = Duration::from_mins(10);
const MIB: f64 = 1_048_576.0;
/// The bytes of the log and of each of its indexes.
const SIZES: &str = "with parts as (select inhrelid as oid from pg_inherits \
     where inhparent = 'audit_log'::regclass and pg_relation_size(inhrelid) > 0), \
     measured as (select oid from parts union all select indexrelid from pg_index join parts on indrelid = parts.oid) \
     select coalesce(nullif(split_part(relname, '_', 4), ''), 'table'), sum(pg_table_size(c.oid)) \
     from measured join pg_class c using (oid) group by 1 order by 1 desc";
/// Does what autovacuum would do later.
const SUMMARIZE: &str = "select sum(brin_summarize_new_values(c.oid)) from pg_inherits \
     join pg_index on indrelid = inhrelid join pg_class c on c.oid = indexrelid join pg_am a on a.oid = c.relam \
     where inhparent = 'audit_log'::regclass and amname = 'brin'";
const WRITE_AHEAD: &str = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";

/// The rows and rates.
#[derive(Args)]
pub(crate) struct AuditLog {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Rows to write, at least
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    /// Reads per second at which unwritten events are counted afterwards
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,15000", value_parser = clap::value_parser!(u32).range(1..))]
    rates: Vec<u32>,
    /// How long each rate lasts, in seconds
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Draw the wait of events over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Measures and prints tables.
///
/// # Errors
/// If rows are lost or late or the log does not verify, or the gateway or the database cannot be run.
pub(crate) async fn run(options: &AuditLog) -> Result<(), Error> {
    let print = |text: String| io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"));
    let agents = (options.rows / BATCH).clamp(1, AGENTS);
    let group = Group { prefix: "audited", agents, resources: 1, keys: agents, bytes: 64 };
    site::measured(options.waggle.as_ref(), async |site| {
        population::write(site, std::slice::from_ref(&group)).await?;
        print(write_rows(site, &group, options.rows).await?)?;
        print(verify(site).await?)?;
        settle(site).await?;
        let port = site.start(&[]).await?;
        let mut lags = Vec::new();
        for rate in &options.rates {
            lags.push(Lag::measure(port, &group, *rate, Duration::from_secs(options.seconds)).await?);
            all_written(port).await?;
        }
        print(audit_lag::table(&lags))?;
        if let Some(file) = &options.svg {
            fs::write(file, svg::document(&[audit_lag::chart(&lags)]))
                .map_err(Error::io("write the curves"))?;
        }
        lags.iter().try_for_each(Lag::check)
    })
    .await
}

/// Has PostgreSQL do now what it postponed while the rows were written, instead of while unwritten events are counted.
async fn settle(site: &Site) -> Result<(), Error> {
    for command in ["vacuum analyze", "checkpoint"] {
        site.database.rows(command).await?;
    }
    Ok(())
}

/// Has the gateway write rows of reads, and reports what they took.
async fn write_rows(site: &mut Site, group: &Group, rows: usize) -> Result<String, Error> {
    let port = site.start(&WRITING).await?;
    let requests = Requests {
        case: "a batch of resources/read",
        bytes: (0..group.agents).map(|nth| batch(group, nth, port)).collect(),
        least: BATCH * group.bytes,
    };
    let times = rows.div_ceil(BATCH * group.agents);
    let log_before = site.database.rows(WRITE_AHEAD).await?;
    let (postgres, began) = (site.postgres()?, Instant::now());
    let before = postgres.cpu();
    requests.send(site, port, End::Times(times)).await?;
    let elapsed = began.elapsed();
    all_written(port).await?;
    site.database.rows(SUMMARIZE).await?;
    let used = postgres.cpu().saturating_sub(before);
    let written = number(&site.database.rows("select count(*) from audit_log").await?)?;
    let wanted = to_f64((times * BATCH * group.agents) as u64);
    if written < wanted {
        return Err(Error::Database(format!("{written} rows are in the audit log instead of {wanted}")));
    }
    let log = number(&site.database.rows(WRITE_AHEAD).await?)? - number(&log_before)?;
    let sizes = site.database.rows(SIZES).await?;
    site.stop_gateways().await;
    let mut total = 0.0;
    let mut rows = String::new();
    for line in sizes.lines() {
        let (name, bytes) = line.split_once('|').unwrap_or((line, ""));
        let each = number(bytes)? / written;
        total += each;
        rows.extend([format!("| {name}, bytes | {each:.1} |\n")]);
    }
    Ok(format!(
        "{written} rows of {} agents, {:.0} rows a second\n\n| | a row |\n|---|--:|\n{rows}\
         | **total, bytes** | **{total:.0}** |\n| write-ahead log, bytes | {:.0} |\n\
         | **CPU of PostgreSQL, µs** | **{:.1}** |\n\n",
        group.agents,
        written / elapsed.as_secs_f64(),
        log / written,
        used.as_secs_f64() * 1e6 / written
    ))
}

/// A batch of reads by the nth key; of the revisions of MCP, only this one has batches.
fn batch(group: &Group, nth: usize, port: u16) -> Vec<u8> {
    let read = |id| json!({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": "x:1"}});
    let key = group.key(nth);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2025-03-26"),
        ("X-Agent-API-Key", key.as_str()),
    ];
    let body = Value::Array((0..BATCH).map(read).collect());
    http::request("POST", &format!("/{}/mcp", group.agent(nth)), port, &headers, Some(&body))
}

/// Waits until no event is in memory or in a spill file.
async fn all_written(port: u16) -> Result<(), Error> {
    let all = async {
        loop {
            let text = metrics::scrape(port).await?;
            let left: f64 = ["waggle_audit_waiting ", "waggle_audit_spilled_bytes "]
                .map(|name| metrics::sum::<f64>(&text, name))
                .iter()
                .sum();
            if left == 0.0 {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let late = Error::TimedOut { server: "the writer of the audit log", seconds: WRITTEN.as_secs() };
    timeout(WRITTEN, all).await.unwrap_or(Err(late))
}

/// Verifies the log with the gateway's command.
async fn verify(site: &Site) -> Result<String, Error> {
    let mut command = waggle::clean(&site.binary, site.dir.path());
    command.env("WAGGLE_DATABASE__URL", site.database.url()).args(["audit", "verify"]);
    let began = Instant::now();
    let process = Process::start("waggle audit verify", command, 0, site.dir.path())?;
    let most = process.finish(VERIFIED).await?;
    Ok(format!(
        "| `waggle audit verify` | |\n|---|--:|\n| seconds | {:.1} |\n| most resident memory, MiB | {:.0} |\n\n",
        began.elapsed().as_secs_f64(),
        to_f64(most) / MIB
    ))
}

fn number(text: &str) -> Result<f64, Error> {
    text.trim().parse().map_err(|_| Error::Database(format!("expected a number, found {text}")))
}
