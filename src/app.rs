//! The running gateway.

use crate::config::Settings;

/// Why the gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {}

/// Runs the gateway until it is told to stop; with `demo`, with the demo agent registered.
///
/// # Errors
/// None yet.
#[expect(clippy::unused_async, reason = "the gateway that is to run here awaits")]
pub async fn run(settings: Settings, demo: bool) -> Result<(), AppError> {
    tracing::info!(listen = %settings.server.listen, demo, "the settings are valid; nothing is served yet");
    Ok(())
}

/// Brings the schema of the database up to date.
///
/// # Errors
/// None yet.
#[expect(clippy::unused_async, reason = "the migrations that are to run here await")]
pub async fn migrate(settings: Settings) -> Result<(), AppError> {
    let embedded = settings.database.url.is_none();
    tracing::info!(embedded, "the settings are valid; there is nothing to migrate yet");
    Ok(())
}
