//! Traces in OpenTelemetry's protocol (OTLP), configured by the standard `OTEL_*` variables.
//!
//! [`TraceContext`] parses the `traceparent` of W3C Trace Context, [`Sampler`] decides which traces are exported, and
//! [`Exporter`] sends their spans in batches, over HTTP or gRPC. Its queue is bounded: where a collector is slow or gone,
//! spans are dropped and counted, and no caller waits. [`Config::read`] reads the variables.

mod config;
mod context;
mod exporter;
mod sampler;
mod span;
mod transport;

pub use config::{Config, Protocol};
pub use context::TraceContext;
pub use exporter::{ExportStats, ExportTask, Exporter};
pub use sampler::Sampler;
pub use span::{Kind, Link, Span, Value};
