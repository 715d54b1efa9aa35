//! Logs, the spans of requests, and the text format of metrics.

pub(crate) mod exposition;
mod logs;
pub mod span;

pub use logs::{FilterHandle, TelemetryError, init, started_format};
