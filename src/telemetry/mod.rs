//! Logs and the text format of metrics.

pub(crate) mod exposition;
mod logs;

pub use logs::{FilterHandle, TelemetryError, init, started_format};
