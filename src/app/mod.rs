//! The running gateway: builds its parts, connects them, and owns startup and shutdown.

mod audit;
mod background;
mod backup;
mod build;
mod check;
mod client;
mod connection_keys;
mod credentials;
mod demo;
mod diagnosis;
mod directory;
mod doctor;
mod embedded;
mod error;
mod error_codes;
mod files;
mod memory;
mod options;
mod probe;
mod reload;
mod run;
mod schema;
mod service_manager;
mod services;
mod signals;
mod signing;
mod startup;
mod traces;
mod verify;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::admin;
use crate::audit::RunningAudit;
use crate::config::Settings;
use crate::feed::Feed;
use crate::http::operator_keys::OperatorKeys;
use crate::model::sources::Sources;
use crate::server::listeners::Listeners;
use crate::store::{Store, StoreOptions};

use background::Background;
use build::build;
use credentials::AcceptedCredentials;

pub use backup::{Backup, backup, restore};
pub use check::{Checked, UsedAddress, check};
pub(crate) use client::{client, root_cause};
pub use demo::Demo;
pub use diagnosis::{Diagnosis, Finding, Status};
pub use doctor::{DiagnosedAt, diagnose};
pub use embedded::database;
pub use error::AppError;
pub use error_codes::error_codes;
pub use files::FileProblem;
pub use reload::Reloader;
pub use run::run;
pub use schema::{migrate, schema_status};
pub use services::DatabaseServices;
pub use signing::audit_key;
pub use verify::{Verdict, verify_audit};

/// How long cleanup may take after the last request: writes of disconnected callers, open connections.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);

/// Checks the body of the administration call that creates a tenant, a connection (without secrets) or an agent: a `POST` to
/// this path.
///
/// # Errors
/// The first member that is wrong.
pub fn check_body(path: &str, body: Map<String, Value>) -> Result<(), String> {
    admin::check_body(path, body)
}

/// The OpenAPI document of the administration API, as JSON.
pub fn openapi() -> &'static str {
    admin::document()
}

/// A running gateway.
#[derive(Debug)]
pub struct Running {
    /// The address of the MCP endpoints.
    pub address: SocketAddr,
    /// The address of the administration API.
    pub admin_address: SocketAddr,
    /// Its services over the database.
    pub services: DatabaseServices,
    feed: Arc<Feed>,
    store: Store,
    audit: RunningAudit,
    credentials: AcceptedCredentials,
    listeners: Listeners,
    background: Background,
    grace: Duration,
}

/// Starts a gateway on a database; waits for the database while it is unreachable.
///
/// # Errors
/// If the database refuses or cannot be migrated, or an address is in use.
pub async fn start(
    settings: &Settings,
    database: StoreOptions,
    operators: OperatorKeys,
    sources: Sources,
) -> Result<Running, AppError> {
    let listeners = Listeners::open(settings, &sources).await?;
    build(settings, database, operators, sources, listeners).await
}

impl Running {
    /// Stops accepting, ends the streams, lets requests in flight finish within `server.shutdown_seconds`, then stops,
    /// whether or not the database answers.
    pub async fn stop(self) {
        let deadline = tokio::time::Instant::now() + self.grace + AFTER_REQUESTS;
        self.listeners.close().await;
        let leaving = async {
            self.feed.end_streams().await;
            self.services.drain().await;
            self.audit.stop().await;
            self.background.end().await;
            self.store.close().await;
        };
        if tokio::time::timeout_at(deadline, leaving).await.is_err() {
            self.background.stop.cancel();
            tracing::warn!("database unreachable at shutdown; last writes may be missing");
        }
    }
}
