//! Errors of starting the audit log.

use std::io;
use std::path::PathBuf;

use crate::model::system::RandomError;

/// Why the audit log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The system's random source failed.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The spill file cannot be created.
    #[error("{0}: {1}; audit.spill_dir names a directory that the gateway may write to")]
    File(PathBuf, #[source] io::Error),
    /// The HTTP client for checkpoints cannot be built.
    #[error("audit.checkpoint_to: {0}")]
    Client(#[source] reqwest::Error),
}
