//! The errors of a benchmark; each message states the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::baseline::Behind;

/// Why a run, or one of the comparison servers, failed.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("cannot {doing}: {source}")]
    Io { doing: String, source: io::Error },
    #[error(
        "there is no gateway at {0}; build it with `cargo build --release --bin waggle`, name it with \
         --waggle, or measure without it: --only limit,rmcp"
    )]
    NoGateway(PathBuf),
    #[error("`limit` answers with a copy of another server's answer; add rmcp or waggle to --only")]
    LimitAlone,
    #[error("{server} exited before it was ready ({status}); the end of its log:\n{log}")]
    EndedEarly { server: &'static str, status: std::process::ExitStatus, log: String },
    #[error("{server} was not ready after {seconds} s; the end of its log:\n{log}")]
    NotReady { server: &'static str, seconds: u64, log: String },
    #[error("{server} did not answer within {seconds} s")]
    TimedOut { server: &'static str, seconds: u64 },
    #[error("the administration call {call} was answered {status}: {body}")]
    AdminRefused { call: String, status: u16, body: String },
    #[error("the answer to the administration call {call} has no member `{member}`")]
    AdminAnswer { call: String, member: &'static str },
    #[error("{server} answered {status} to {case}: {body}")]
    Status { server: &'static str, case: &'static str, status: u16, body: String },
    #[error("unexpected answer of {server} to {case}: expected {expected}, found {body}")]
    Unexpected { server: &'static str, case: &'static str, expected: &'static str, body: String },
    #[error("invalid HTTP/1.1 answer: {0}")]
    Framing(&'static str),
    #[error("{server} answered {status} to a request for a stream")]
    NoStream { server: &'static str, status: u16 },
    #[error("{server} ended a stream too early")]
    StreamEnded { server: &'static str },
    #[error("{server} answered {status} to a change: {body}")]
    ChangeRefused { server: &'static str, status: u16, body: String },
    #[error("{server} is not running")]
    NotRunning { server: &'static str },
    #[error("no request was answered in a measured phase of {seconds} s")]
    NothingMeasured { seconds: u64 },
    #[error("{0} has an unknown format")]
    Proc(String),
    #[error("PostgreSQL failed: {0}")]
    Database(String),
    #[error("pgbench failed: {0}")]
    Pgbench(String),
    #[error("a load task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("{0} is no baseline; write one with --record")]
    Baseline(PathBuf),
    #[error("ratios fell behind by more than 10 %, measured again to be sure:\n{}", .0.iter().map(|case| format!("  {case}")).collect::<Vec<_>>().join("\n"))]
    FellBehind(Vec<Behind>),
    #[error("the resident memory exceeded its bound with budgets of {0:?} MiB")]
    MemoryExceeded(Vec<u64>),
    #[error("{0} valid keys were refused")]
    Refused(usize),
    #[error("{server} was killed, since it had not exited 20 s after SIGTERM")]
    NotStopped { server: &'static str },
    #[error("{command} failed ({status}); the end of its log:\n{log}")]
    CommandFailed { command: &'static str, status: std::process::ExitStatus, log: String },
    #[error("{0} requests failed or were refused")]
    RequestsFailed(u64),
    #[error("streams missed {lost} events, or were broken for {longest:?}")]
    StreamsBroken { lost: usize, longest: Duration },
    #[error("more than 1 % of the searches took over {p99:?}, or a change was found after {fresh:?}")]
    SearchTooSlow { p99: Duration, fresh: Duration },
    #[error(
        "a cached read of content from a connection costs {ratio:.2} times an inline one; {wanted} wanted"
    )]
    SourcesTooSlow { ratio: f64, wanted: f64 },
    #[error("a read with traces costs {ratio:.3} times one without; {wanted} wanted")]
    TracesTooSlow { ratio: f64, wanted: f64 },
    #[error(
        "a mount was listed after more than {listed:?}, a changed file was notified after more than {notified:?}, or a \
         list page costs more than {ratio} times one of inline resources"
    )]
    MountsTooSlow { listed: Duration, notified: Duration, ratio: f64 },
    #[error("{0} events of the audit log were lost")]
    EventsLost(u64),
    #[error(
        "unwritten events of the audit log were {0:.0} ms old at the 99th percentile, expected at most {1:.0} ms"
    )]
    EventsLate(f64, f64),
    #[error("interrupted; the servers have been stopped")]
    Interrupted,
}

impl Error {
    /// Wraps an I/O error with the attempted action, phrased to follow "cannot".
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The beginning of an answer, for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    const BYTES: usize = 400;
    let text = String::from_utf8_lossy(body.get(..BYTES).unwrap_or(body));
    if body.len() > BYTES { format!("{text}…") } else { text.into_owned() }
}
