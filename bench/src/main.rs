//! `waggle-bench`: the CPU time of a request to the gateway, as a multiple of a bare handler; its writes per second, as
//! a share of the writes per second of its database without it; and the cost and latency of its streams.
//!
//! Three servers take turns on the same machine in one run: `limit`, a bare handler; `rmcp`, the official SDK; and
//! `waggle`. Absolute times depend on the machine; their ratios hardly do.

mod audit_lag;
mod audit_log;
mod balancer;
mod baseline;
mod broadcast;
mod caches;
mod cases;
mod closed_loop;
mod cold_reads;
mod cpu;
mod database;
mod descriptors;
mod error;
mod fan_out;
mod first_use;
mod fixture;
mod fleet;
mod growth;
mod histogram;
mod http;
mod large_agent;
mod library;
mod limit;
mod load;
mod memory;
mod metrics;
mod mounts;
mod open_loop;
mod options;
mod pgbench;
mod population;
mod process;
mod relay;
mod replicas;
mod report;
mod resuming;
mod rmcp;
mod rmcp_streams;
mod rolling_restart;
mod run;
mod search;
mod site;
mod sources;
mod sse;
mod stream_client;
mod stream_report;
mod streams;
mod subscribers;
mod svg;
mod traces;
mod trigger;
mod waggle;
mod write_report;
mod writes;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use crate::audit_log::AuditLog;
use crate::baseline::Baseline;
use crate::caches::Caches;
use crate::error::Error;
use crate::first_use::FirstUse;
use crate::growth::Growth;
use crate::mounts::Mounts;
use crate::options::Options;
use crate::replicas::Replicas;
use crate::rolling_restart::RollingRestart;
use crate::search::Search;
use crate::sources::Sources;
use crate::traces::Traces;

/// Measures the gateway's CPU time per request as a multiple of a bare HTTP handler
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    server: Option<Server>,
    #[command(flatten)]
    options: Options,
}

/// The comparison servers, which a run starts itself, and checks.
#[derive(Subcommand)]
enum Server {
    /// Answer fixed bytes on 127.0.0.1
    #[command(name = "serve-limit")]
    Limit {
        #[arg(long)]
        port: u16,
        /// The path that is answered
        #[arg(long)]
        route: String,
        /// The file that holds the answer
        #[arg(long)]
        answer: PathBuf,
        /// A file of keys: each has a copy of the answer, and other requests are refused
        #[arg(long)]
        keys: Option<PathBuf>,
        /// How long to serve at the most
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Send an event to all streams for each change made on 127.0.0.1
    #[command(name = "serve-broadcast")]
    Broadcast {
        #[arg(long)]
        port: u16,
        /// How long to serve at the most
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Use many valid keys for the first time right after a start, beside forged ones; fail if one is refused
    FirstUse(FirstUse),
    /// Measure the resident memory of a gateway whose working set exceeds the budget of its caches; fail above the bound
    Caches(Caches),
    /// Measure what replicas on one database cost while idle, and how long an event takes to reach them
    Replicas(Replicas),
    /// Measure reads, memory and lists as more agents of a large database are in use
    Growth(Growth),
    /// Restart replicas one after another under a fixed rate of requests; fail if one of these fails
    RollingRestart(RollingRestart),
    /// Measure what a row of the audit log costs, how long a large log takes to verify, and unwritten events over time
    AuditLog(AuditLog),
    /// Search in an agent of many resources in several languages; fail if it is slower than wanted
    Search(Search),
    /// Compare cached reads of content from a connection with inline ones, and measure these beside failing sources
    Sources(Sources),
    /// Compare a read with traces with one without; fail if it costs more than wanted
    Traces(Traces),
    /// Mount many files: the time until all are listed, memory, notifications and list pages; fail if slower than wanted
    Mounts(Mounts),
    /// Serve the same resources with the official SDK on 127.0.0.1
    #[command(name = "serve-rmcp")]
    Rmcp {
        #[arg(long)]
        port: u16,
        /// How long to serve at the most
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Notify all sessions of the official SDK of each change made on 127.0.0.1
    #[command(name = "serve-rmcp-streams")]
    RmcpStreams {
        #[arg(long)]
        port: u16,
        /// How long to serve at the most
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = runtime(&cli).map_err(Error::io("start the runtime")).and_then(|it| it.block_on(act(cli)));
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    let _unreported = writeln!(io::stderr(), "waggle-bench: {error}");
    ExitCode::FAILURE
}

/// The servers use every core. The load generator has one thread, which costs it less and leaves them the rest.
fn runtime(cli: &Cli) -> io::Result<Runtime> {
    let mut builder =
        if cli.server.is_some() { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

async fn act(cli: Cli) -> Result<(), Error> {
    match cli.server {
        Some(Server::Limit { port, route, answer, keys: None, seconds }) => {
            limit::serve(port, &route, &answer, seconds).await
        }
        Some(Server::Limit { port, route, answer, keys: Some(keys), seconds }) => {
            limit::serve_keys(port, &route, (&answer, &keys), seconds).await
        }
        Some(Server::Rmcp { port, seconds }) => rmcp::serve(port, seconds).await,
        Some(Server::RmcpStreams { port, seconds }) => rmcp_streams::serve(port, seconds).await,
        Some(Server::Broadcast { port, seconds }) => broadcast::serve(port, seconds).await,
        Some(Server::FirstUse(options)) => first_use::run(&options).await,
        Some(Server::Caches(options)) => caches::run(&options).await,
        Some(Server::Replicas(options)) => replicas::run(&options).await,
        Some(Server::Growth(options)) => growth::run(&options).await,
        Some(Server::RollingRestart(options)) => rolling_restart::run(&options).await,
        Some(Server::Search(options)) => search::run(&options).await,
        Some(Server::Sources(options)) => sources::run(&options).await,
        Some(Server::Traces(options)) => traces::run(&options).await,
        Some(Server::Mounts(options)) => mounts::run(&options).await,
        Some(Server::AuditLog(options)) => audit_log::run(&options).await,
        None => {
            let found = run::run(&cli.options).await?;
            let parts = [
                cli.options.measures_reads().then(|| report::reads(&found.reads, &cli.options)),
                found.writes.as_ref().map(write_report::render),
                found.streams.as_ref().map(stream_report::render),
                Some(report::setting(&cli.options)),
            ];
            let report = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
            io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
            if let Some(path) = &cli.options.record {
                Baseline::of(&found.reads).write(path, &report::setting(&cli.options))?;
            }
            if found.behind.is_empty() { Ok(()) } else { Err(Error::FellBehind(found.behind)) }
        }
    }
}
