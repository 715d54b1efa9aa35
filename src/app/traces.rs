//! Starts the export of traces, where the `OTEL_*` variables name a collector.

use std::sync::Arc;
use std::time::Duration;

use trace_export::Exporter;

use super::AppError;
use super::background::Background;
use crate::config::Settings;
use crate::model::system::System;
use crate::telemetry::trace::Tracer;

/// How long a shutdown waits for the spans in the queue.
const GRACE: Duration = Duration::from_secs(1);

/// Starts the export, which ends with the background tasks; `None` if no collector is configured.
///
/// # Errors
/// If the source of randomness fails, or no client can be made.
pub(super) fn start(
    settings: &Settings,
    system: &System,
    background: &Background,
) -> Result<Option<Arc<Tracer>>, AppError> {
    let Some(config) = settings.otel.clone() else { return Ok(None) };
    // Installs a crypto provider unless the embedding program has installed one.
    rustls::crypto::ring::default_provider().install_default().ok();
    let sampler = config.sampler();
    let scope = ("waggle", env!("CARGO_PKG_VERSION"));
    let (exporter, task) = Exporter::new(config, scope).map_err(AppError::Traces)?;
    let mut seed = [[0; 8]; 3];
    for part in &mut seed {
        system.random.fill(part)?;
    }
    let random = Arc::clone(&system.random);
    background.spawn(|stop| async move {
        let stopped = async { stop.cancelled().await };
        let report = |error: Option<&str>| {
            if let Some(error) = error {
                tracing::warn!(error, "spans not exported");
            } else {
                tracing::info!("spans exported again");
            }
        };
        task.run(stopped, GRACE, |delay| random.jitter(delay), report).await;
    });
    let seed = seed.map(u64::from_be_bytes);
    Ok(Some(Arc::new(Tracer::new(exporter, sampler, seed, settings.traces.resource_uri))))
}
