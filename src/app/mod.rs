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
mod running;
mod schema;
mod service_manager;
mod services;
mod signals;
mod signing;
mod startup;
mod traces;
mod verify;

use serde_json::{Map, Value};

use crate::admin;

pub use backup::{Backup, backup, restore};
pub use build::start;
pub use check::{Checked, UsedAddress, check};
pub(crate) use client::{client, root_cause};
pub use demo::Demo;
pub use diagnosis::{Diagnosis, Finding, Status};
pub use doctor::{DiagnosedAt, diagnose};
pub use embedded::database;
pub use error::AppError;
pub use error_codes::error_codes;
pub use files::FileProblem;
pub(crate) use probe::readiness_reasons;
pub use reload::Reloader;
pub use run::run;
pub use running::Running;
pub use schema::{migrate, schema_status};
pub use services::DatabaseServices;
pub use signing::audit_key;
pub use verify::{Verdict, verify_audit};

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
