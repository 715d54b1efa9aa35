//! The command line of a run.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::error::Error;

/// What to measure, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// The servers to measure
    #[arg(long, value_delimiter = ',', default_value = "limit,rmcp,unaudited,waggle")]
    only: Vec<Server>,
    /// How often each case is measured at each server; the report gives medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many connections send requests
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) connections: u16,
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Fail if a read's ratio to `limit` is more than 10 % above the one recorded in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
    /// Record the ratios of the reads in this file
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) record: Option<PathBuf>,
    /// Which requests of the gateway are measured
    #[arg(long, value_enum, default_value_t = What::All)]
    what: What,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Reads, then writes, then streams
    All,
    /// Reads, compared with the other servers
    Reads,
    /// Writes
    Writes,
    /// Open streams, compared with the other servers
    Streams,
}

/// A server that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// A bare handler with a fixed answer
    Limit,
    /// The official Rust SDK
    Rmcp,
    /// The gateway with accesses left out of its audit log
    Unaudited,
    /// The gateway
    Waggle,
}

impl Server {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Rmcp => "rmcp",
            Self::Unaudited => "waggle, accesses not audited",
            Self::Waggle => "waggle",
        }
    }
}

impl Options {
    /// The selected servers, in the order in which they take turns at reads.
    pub(crate) fn servers(&self) -> impl Iterator<Item = Server> {
        let measured = |server: &Server| self.measures(*server);
        [Server::Limit, Server::Rmcp, Server::Unaudited, Server::Waggle].into_iter().filter(measured)
    }

    /// Whether a server takes part. Only the gateway takes writes; the cost of auditing accesses shows in reads.
    pub(crate) fn measures(&self, server: Server) -> bool {
        let measured = match server {
            Server::Limit | Server::Rmcp => self.what != What::Writes,
            Server::Unaudited => self.measures_reads(),
            Server::Waggle => true,
        };
        measured && self.only.contains(&server)
    }

    pub(crate) fn measures_reads(&self) -> bool {
        matches!(self.what, What::All | What::Reads)
    }

    pub(crate) fn measures_writes(&self) -> bool {
        matches!(self.what, What::All | What::Writes) && self.measures(Server::Waggle)
    }

    pub(crate) fn measures_streams(&self) -> bool {
        matches!(self.what, What::All | What::Streams)
    }

    /// How long one measurement lasts.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The gateway's binary.
    pub(crate) fn waggle_binary(&self) -> Result<PathBuf, Error> {
        gateway_binary(self.waggle.as_ref())
    }
}

/// The gateway's binary that `--waggle` names, else the one beside this program.
pub(crate) fn gateway_binary(named: Option<&PathBuf>) -> Result<PathBuf, Error> {
    let binary = match named {
        Some(path) => std::path::absolute(path).map_err(Error::io("make the path of --waggle absolute"))?,
        None => own_binary()?.with_file_name("waggle"),
    };
    if binary.is_file() { Ok(binary) } else { Err(Error::NoGateway(binary)) }
}

/// The path of this program, which is also that of the comparison servers.
pub(crate) fn own_binary() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::io("find the path of this program"))
}
