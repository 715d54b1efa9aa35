//! Output and exit codes of commands.

use std::io;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::app::AppError;
use crate::config::{ConfigError, LogFormat};
use crate::telemetry::{self, TelemetryError};

/// Why a command failed.
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
    #[error("unexpected answer: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("a check failed")]
    Unhealthy,
    #[error("the audit log was tampered with")]
    Unsound,
    #[error("the audit log could not be verified: {0}")]
    Unverified(Box<Failure>),
    #[error("cannot read {0}: {1}")]
    Input(String, io::Error),
    #[error("cannot write {0}: {1}")]
    File(String, io::Error),
    #[error("{0}: {1}")]
    InvalidInput(String, String),
}

/// Prints to standard output. A closed pipe is not a failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_piece(text.as_bytes()).map(|_| ())
}

/// Prints a part of a long output; breaks if the pipe is closed.
pub(super) fn print_piece(bytes: &[u8]) -> Result<ControlFlow<()>, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::Output(error)),
    }
}

/// The exit code of a command; prints a failure to standard error.
pub(super) fn exit_code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    // A failure of standard error cannot be reported.
    io::stderr().write_all(failure_text(&failure, OffsetDateTime::now_utc()).as_bytes()).ok();
    match failure {
        Failure::Config(_)
        | Failure::Usage(_)
        | Failure::Input(..)
        | Failure::InvalidInput(..)
        | Failure::Unverified(_)
        | Failure::App(AppError::Files(_) | AppError::Url(..)) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// The exit code of a comparison: 2 if there is a difference, 1 for every failure.
pub(super) fn difference(done: Result<bool, Failure>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::from(2),
        Ok(false) => ExitCode::SUCCESS,
        Err(failure) => {
            exit_code(Err(failure));
            ExitCode::FAILURE
        }
    }
}

/// A failure in the format of the log: text, or JSON lines with the members of log lines.
fn failure_text(failure: &Failure, now: OffsetDateTime) -> String {
    let format = match failure {
        // Logging has not started: only a configured format counts.
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

/// Prints help, the version, or an error of the command line.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    error.print().ok();
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}
