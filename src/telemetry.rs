//! Logging: every event on standard error, as text or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, filter::ParseError, util::TryInitError};
use tracing_subscriber::{fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Log, LogFormat};

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("log.filter: {0}")]
    Filter(#[from] ParseError),
    /// Somebody in this process logs already.
    #[error("logging was started twice: {0}")]
    Started(#[from] TryInitError),
}

/// Starts logging for the whole process. To be called once.
///
/// # Errors
/// When logging was started already.
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(log.filter.as_str())?;
    let terminal = io::stderr().is_terminal();
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    match log.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json }) {
        LogFormat::Text => registry.with(lines.with_ansi(terminal)).try_init()?,
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init()?,
    }
    Ok(())
}
