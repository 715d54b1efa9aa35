//! The gateway as a process: start, drain after `SIGTERM`, and graceful shutdown.

use tokio_util::task::AbortOnDropHandle;

use super::build::build;
use super::demo::Documentation;
use super::signals::{Command, Signals};
use super::{
    AppError, Demo, Reloader, Running, connection_keys, credentials, database, demo, files, service_manager,
    signing,
};
use crate::config::Settings;
use crate::http::operator_keys::OperatorKeys;
use crate::model::system::System;
use crate::server::listeners::Listeners;
use crate::store::StoreOptions;

/// Runs a gateway until a signal stops the process, also during the start. With `demo`, registers the demo agent, and also
/// stops at `SIGHUP`, since its terminal is closed.
///
/// # Errors
/// As [`start`](super::start), and if the embedded database or the demo agent fails.
pub async fn run(mut settings: Settings, demo: Option<Demo>, mut reloader: Reloader) -> Result<(), AppError> {
    let mut signals = Signals::handle().map_err(AppError::Signals)?;
    files::require(&settings).await?;
    let system = System::real();
    let is_demo = demo.is_some();
    let documentation = demo.and_then(|demo| Documentation::find(demo.docs.as_deref()));
    if let Some(documentation) = &documentation {
        documentation.allow(&mut settings);
    }
    // An error is kept: for a second gateway on a data directory, the error of the lock is more helpful.
    let listeners = Listeners::open(&settings, &system).await.map_err(AppError::from);
    let (database, embedded) = tokio::select! {
        database = database(&settings) => database?,
        () = signals.stop() => {
            tracing::info!("stopped");
            return Ok(());
        }
    };
    let is_embedded = embedded.is_some();
    let running = tokio::select! {
        running = begin(&settings, database, (is_embedded, is_demo, documentation.as_ref()), system, listeners) => Some(running),
        () = signals.stop() => None,
    };
    let ended = match running {
        Some(Ok(running)) => {
            service_manager::ready();
            let _alive = AbortOnDropHandle::new(tokio::spawn(service_manager::keep_alive()));
            let mut command = signals.next().await;
            while command == Command::Reload && !is_demo {
                service_manager::reloading();
                reloader.reload(&running, is_embedded).await;
                service_manager::ready();
                command = signals.next().await;
            }
            service_manager::stopping();
            if command == Command::Terminate {
                drain(&settings, &running, &mut signals).await;
            }
            signals.exit_at_interrupt();
            tracing::info!("stopping");
            running.stop().await;
            Ok(())
        }
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    if ended.is_ok() {
        tracing::info!("stopped");
    }
    ended
}

/// Fails readiness and continues to serve, so that load balancers notice before connections are refused. A second signal
/// ends the drain.
async fn drain(settings: &Settings, running: &Running, signals: &mut Signals) {
    let drain = settings.server.drain;
    if drain.is_zero() {
        return;
    }
    running.listeners.gateway.drain();
    tracing::info!(drain_seconds = drain.as_secs(), "draining");
    tokio::select! {
        () = tokio::time::sleep(drain) => {}
        () = signals.stop() => {}
    }
}

/// Starts the gateway of this process, with the demo agent and its documentation if requested.
async fn begin(
    settings: &Settings,
    database: StoreOptions,
    (embedded, demo, documentation): (bool, bool, Option<&Documentation>),
    system: System,
    listeners: Result<Listeners, AppError>,
) -> Result<Running, AppError> {
    let listeners = listeners?;
    let operators = OperatorKeys::new(&credentials::operators(settings, embedded, &system)?);
    credentials::log_operators(&operators);
    let own;
    let settings = if embedded {
        own = connection_keys::with_own_file(signing::with_own_key(settings.clone(), &system)?);
        &own
    } else {
        settings
    };
    let running = build(settings, database, operators, system, listeners).await?;
    tracing::info!(address = %running.address, admin = %running.admin_address, "serving");
    if demo {
        demo::register(settings, &running, documentation).await?;
    }
    Ok(running)
}
