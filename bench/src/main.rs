//! `waggle-bench`: what a request costs the gateway in CPU time, as a multiple of the least it could cost; and how fast
//! it writes, as a share of what its database does without it.
//!
//! Three servers take turns on the same machine in one run: `limit`, a bare handler; `rmcp`, the official
//! SDK; and `waggle`. Absolute times depend on the machine, their ratios hardly do.

mod cases;
mod cpu;
mod error;
mod fixture;
mod fleet;
mod histogram;
mod http;
mod limit;
mod load;
mod options;
mod pgbench;
mod process;
mod report;
mod rmcp;
mod run;
mod waggle;
mod write_report;
mod writes;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use crate::error::Error;
use crate::options::Options;

/// Measures the gateway's CPU time per request against the least an HTTP server can cost
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    server: Option<Server>,
    #[command(flatten)]
    options: Options,
}

/// The comparison servers, which a run starts by itself.
#[derive(Subcommand)]
enum Server {
    /// Answer fixed bytes on 127.0.0.1
    ServeLimit {
        #[arg(long)]
        port: u16,
        /// The path that is answered
        #[arg(long)]
        route: String,
        /// The file that holds the answer
        #[arg(long)]
        answer: PathBuf,
        /// How long to serve at the most
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// Serve the same resources with the official SDK on 127.0.0.1
    ServeRmcp {
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
    let _nowhere_left_to_tell = writeln!(io::stderr(), "waggle-bench: {error}");
    ExitCode::FAILURE
}

/// The servers use every core; the load generator keeps to one thread, which is cheaper for it and leaves
/// them the rest.
fn runtime(cli: &Cli) -> io::Result<Runtime> {
    let mut builder =
        if cli.server.is_some() { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

async fn act(cli: Cli) -> Result<(), Error> {
    match cli.server {
        Some(Server::ServeLimit { port, route, answer, seconds }) => {
            limit::serve(port, &route, &answer, seconds).await
        }
        Some(Server::ServeRmcp { port, seconds }) => rmcp::serve(port, seconds).await,
        None => {
            let (rows, writes) = run::run(&cli.options).await?;
            let reads = cli.options.measures_reads().then(|| report::reads(&rows, &cli.options));
            let parts =
                [reads, writes.as_ref().map(write_report::render), Some(report::setting(&cli.options))];
            let report = parts.into_iter().flatten().collect::<Vec<_>>().join("\n");
            io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))
        }
    }
}
