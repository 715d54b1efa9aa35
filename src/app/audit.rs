//! Starts the audit log with the configured options.

use std::path::PathBuf;

use super::{AppError, signing};
use crate::audit::{self, AuditError, AuditOptions, Durability, RunningAudit};
use crate::config::{self, AuditedEvents, Settings};
use crate::model::audit::digest::Digest;
use crate::model::system::System;
use crate::store::Store;

/// Starts the audit log. `secret` is shared by the gateways on this database only.
///
/// # Errors
/// Those of [`audit::start`].
pub(super) fn start(
    settings: &Settings,
    store: &Store,
    secret: &[u8],
    system: System,
) -> Result<RunningAudit, AppError> {
    let wanted = &settings.audit;
    let options = AuditOptions {
        durability: match wanted.durability {
            config::Durability::Batched => Durability::Batched,
            config::Durability::Sync => Durability::Sync,
        },
        accesses: wanted.events == AuditedEvents::All,
        queue: wanted.queue,
        write_timeout: wanted.patience,
        spill_dir: Some(spill_dir(settings, secret)),
        spill_bytes: wanted.spill_bytes,
        retain_days: wanted.retain_days,
        signer: signing::signer(settings)?,
        checkpoints: wanted.checkpoint_to.clone().map(|to| (to, wanted.checkpoint)),
        key_rate: settings.limits.key,
    };
    match audit::start(store, system.clone(), &options) {
        // The default directory may not be writable, for example in a container with an external database.
        Err(AuditError::File(folder, error)) if wanted.spill_dir.is_none() => {
            tracing::warn!(
                folder = %folder.display(), %error,
                "audit spill file not created; audit rows wait in memory while the database is unreachable; set audit.spill_dir"
            );
            let options = AuditOptions { spill_dir: None, ..options };
            Ok(audit::start(store, system, &options)?)
        }
        started => Ok(started?),
    }
}

/// The spill directory of this database, so that a gateway adopts only files of gateways on the same database.
fn spill_dir(settings: &Settings, secret: &[u8]) -> PathBuf {
    let configured = settings.audit.spill_dir.clone();
    let folder = configured.unwrap_or_else(|| settings.embedded.data_dir.join("audit"));
    folder.join(&Digest::of(secret).to_string()[..16])
}
