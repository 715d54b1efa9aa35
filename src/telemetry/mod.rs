//! Logs, the spans and traces of requests, histograms, and the formats of metrics.

mod active_trace;
pub(crate) mod exposition;
pub mod histogram;
mod logs;
mod repeated;
pub mod span;
pub mod trace;

pub use logs::{FilterHandle, TelemetryError, init, started_format};
pub use repeated::{RareEvent, RepeatedWork};
