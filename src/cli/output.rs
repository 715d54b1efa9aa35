//! What commands print, and how they end.

use std::{
    io::{self, ErrorKind, Write},
    ops::ControlFlow,
    process::ExitCode,
};

use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::app::AppError;
use crate::config::{ConfigError, LogFormat};
use crate::telemetry::{self, TelemetryError};

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("{0}")]
    NotReady(String),
    #[error("{0}")]
    Gateway(String),
    #[error("the audit log is not as it was written")]
    Unsound,
    #[error("the audit log could not be verified: {0}")]
    Unverified(Box<Failure>),
    #[error("cannot read {0}: {1}")]
    Input(String, io::Error),
    #[error("cannot write {0}: {1}")]
    File(String, io::Error),
    #[error("{0}: {1}")]
    Manifest(String, String),
}

/// Prints to standard output. A reader that has gone away has read enough: that is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_piece(text.as_bytes()).map(|_| ())
}

/// Prints a piece of what may be long; breaks where the reader has gone away, for whom no more is to be fetched.
pub(super) fn print_piece(bytes: &[u8]) -> Result<ControlFlow<()>, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::Output(error)),
    }
}

/// Ends a command: says on standard error what failed.
pub(super) fn exit_code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    // Nobody is left to tell when standard error itself fails.
    io::stderr().write_all(last_words(&failure, OffsetDateTime::now_utc()).as_bytes()).ok();
    match failure {
        Failure::Config(_) | Failure::Usage(_) | Failure::Unverified(_) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// What failed, in the form of the log: plain text, or JSON lines with the members that log lines have.
fn last_words(failure: &Failure, now: OffsetDateTime) -> String {
    let format = match failure {
        // Logging has not started: only a form that was asked for counts.
        Failure::Config(error) => error.log_format(),
        _ => telemetry::started_format(),
    };
    if format != Some(LogFormat::Json) {
        return format!("{failure}\n");
    }
    let lines: Vec<String> = match failure {
        Failure::Config(error) => error.problems().iter().map(ToString::to_string).collect(),
        other => vec![other.to_string()],
    };
    let line = |error: &String| {
        let timestamp = now.format(&Rfc3339).unwrap_or_default();
        let line =
            json!({"timestamp": timestamp, "level": "ERROR", "message": "waggle failed", "error": error});
        format!("{line}\n")
    };
    lines.iter().map(line).collect()
}

/// Ends with what the parser of the command line has to say: help, the version, or an error.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    error.print().ok();
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}
