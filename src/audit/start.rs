//! Starts the audit log of a process: opens a chain and adopts the spill files of terminated processes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::aggregator::Aggregator;
use super::backlog::Backlog;
use super::checkpoints::{CheckpointDestination, CheckpointWriter};
use super::error::AuditError;
use super::metrics::AuditMetrics;
use super::quarantine::Quarantine;
use super::recorder::{AuditRecorder, Durability, EventQueue};
use super::retention::{self, RetentionOptions};
use super::spill::Spill;
#[cfg(test)]
use super::spill::SpillError;
use super::writer::{BatchOptions, Writer};
use crate::config::CheckpointTarget;
use crate::model::audit::signature::Signer;
use crate::model::limits::Rate;
use crate::model::system::System;
use crate::store::Store;

/// Timeout of a write into the log that no response waits for.
const LOG_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of the audit log.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Whether responses wait until their audit row is committed.
    pub durability: Durability,
    /// Whether accesses are recorded; changes always are.
    pub accesses: bool,
    /// Maximum number of queued events.
    pub queue: usize,
    /// How long a batch waits for the database before it is written to the spill file.
    pub write_timeout: Duration,
    /// Directory of the spill file; `None` for no spill file.
    pub spill_dir: Option<PathBuf>,
    /// Maximum size of the spill file in bytes.
    pub spill_bytes: u64,
    /// Retention of rows, in days.
    pub retain_days: u32,
    /// Signs ledger entries and checkpoints.
    pub signer: Option<Arc<Signer>>,
    /// Where checkpoints are written to, and their interval.
    pub checkpoints: Option<(CheckpointTarget, Duration)>,
    /// The default rate of keys, whose burst bounds the rows of refused requests.
    pub key_rate: Option<Rate>,
}

/// A running audit log and its tasks.
#[derive(Debug)]
pub struct RunningAudit {
    /// Records events.
    pub audit: Arc<AuditRecorder>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RunningAudit {
    /// Writes all queued events and closes the chain.
    pub async fn stop(&self) {
        self.audit.later.close();
        self.audit.later.wait().await;
        self.audit.flush_aggregates();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Starts the audit log without waiting for the database. The spill files of terminated processes are
/// adopted: the writer appends their rows before any newer ones, which wait in this process's spill file or
/// in memory meanwhile.
///
/// # Errors
/// If the directory of the spill file is not usable.
pub fn start(store: &Store, system: System, options: &AuditOptions) -> Result<RunningAudit, AuditError> {
    let chain = system.uid()?;
    let (orphaned, own) = match &options.spill_dir {
        Some(folder) => spill_files(folder, chain, options.spill_bytes)
            .map_err(|error| AuditError::File(folder.clone(), error))?,
        None => (Vec::new(), None),
    };
    if !orphaned.is_empty() {
        tracing::warn!(files = orphaned.len(), "adopting spill files of terminated processes");
    }
    let (queue, metrics) = (Arc::new(EventQueue::new(options.queue)), Arc::new(AuditMetrics::default()));
    metrics.set_has_file(own.is_some());
    let lingers = options.durability == Durability::Batched;
    let batching = BatchOptions { lingers, timeout: options.write_timeout };
    let backlog = Backlog::new(orphaned, own, chain, Arc::clone(&metrics));
    let log = store.audit_log(LOG_TIMEOUT, options.signer.clone());
    let shared = (Arc::clone(&queue), Arc::clone(&metrics));
    let quarantine = Quarantine::new(options.spill_dir.clone(), Arc::clone(&metrics));
    let writer = Writer::new(shared, (quarantine, system.clone()), batching, chain, backlog, log);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tasks.spawn(writer.run(stop.clone()));
    let retention_options = RetentionOptions { retain_days: options.retain_days, system: system.clone() };
    let owner_log = store.owned_audit_log(LOG_TIMEOUT, options.signer.clone());
    tasks.spawn(retention::run(owner_log, retention_options, stop.clone()));
    if let Some((target, every)) = options.checkpoints.clone() {
        let checkpoints = CheckpointWriter {
            target: CheckpointDestination::new(target)?,
            every,
            store: store.clone(),
            system: system.clone(),
            signer: options.signer.clone(),
        };
        tasks.spawn(checkpoints.run(stop.clone()));
    }
    let (durability, accesses, signer) = (options.durability, options.accesses, options.signer.clone());
    let aggregator = Aggregator::new(options.key_rate, system.csprng()?);
    let store = store.clone();
    let later = TaskTracker::new();
    let audit =
        AuditRecorder { queue, aggregator, metrics, durability, accesses, system, store, signer, later };
    let audit = Arc::new(audit);
    tasks.spawn(Arc::clone(&audit).write_aggregates(stop.clone()));
    Ok(RunningAudit { audit, tasks, stop })
}

/// The spill files of terminated processes, and a new one for this process unless the file system is full.
fn spill_files(folder: &Path, chain: Uuid, max_bytes: u64) -> io::Result<(Vec<Spill>, Option<Spill>)> {
    let orphaned = Spill::orphaned(folder)?;
    Ok((orphaned, unless_full(Spill::create(folder, chain, max_bytes), folder)?))
}

/// Ignores a full file system: it must not prevent a start, since the database can take the rows.
fn unless_full<T>(created: io::Result<T>, folder: &Path) -> io::Result<Option<T>> {
    match created {
        Err(error) if is_full(&error) => {
            tracing::error!(
                folder = %folder.display(), %error,
                "audit spill file not created; audit rows wait in memory while the database is unreachable"
            );
            Ok(None)
        }
        created => created.map(Some),
    }
}

/// Whether the file system has no space left. The cause may be wrapped.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind.is_some_and(|kind| matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)) {
            return true;
        }
        // `source` of an `io::Error` skips the error that it wraps.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as _).or_else(|| error.source());
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::path::Path;

    use super::{SpillError, unless_full};

    #[test]
    fn full_file_system_does_not_prevent_a_start() {
        let start = |error: io::Error| {
            unless_full::<()>(Err(error), Path::new("spill")).map_err(|error| error.kind())
        };
        for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
            assert_eq!(start(full.into()), Ok(None));
            let wrapped = io::Error::other(SpillError::File(full.into()));
            assert_eq!(start(wrapped), Ok(None), "when the first record cannot be written");
        }
        assert_eq!(start(ErrorKind::PermissionDenied.into()), Err(ErrorKind::PermissionDenied));
    }
}
