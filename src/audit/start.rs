//! The start: a chain begins, behind what other processes left behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::aggregate::Aggregator;
use super::backlog::Backlog;
use super::checkpoints::{Checkpoints, Target};
use super::keep::{self, Keeping};
use super::quarantine::Quarantine;
use super::queue::Queue;
use super::spill::Spill;
#[cfg(test)]
use super::spill::SpillError;
use super::tally::Tally;
use super::writer::{Pace, Writer};
use super::{Audit, Durability};
use crate::config::CheckpointTarget;
use crate::model::audit::signature::Signer;
use crate::model::limits::Rate;
use crate::model::sources::{RandomError, Sources};
use crate::store::Store;

/// How long a batch may take on its way into the log, once it need not be waited for.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long others are waited for after the first event of a batch.
const LINGER: Duration = Duration::from_millis(30);

/// How the log is kept.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// When an answer may leave.
    pub durability: Durability,
    /// Whether accesses are written down; changes always are.
    pub accesses: bool,
    /// Most events that wait in memory.
    pub queue: usize,
    /// How long a batch waits for the database before it goes into the file.
    pub patience: Duration,
    /// Where the file is; `None` for none.
    pub spill_dir: Option<PathBuf>,
    /// Most bytes of the file.
    pub spill_bytes: u64,
    /// For how many days rows are kept.
    pub retain_days: u32,
    /// Signs entries of the chain of chains, and checkpoints.
    pub signer: Option<Arc<Signer>>,
    /// Where checkpoints are written to, and how often.
    pub checkpoints: Option<(CheckpointTarget, Duration)>,
    /// The rate of a key for which none is set: its burst bounds the rows of its refusals.
    pub key_rate: Option<Rate>,
}

/// Why the audit log cannot be begun.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The machine gives no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The spill file cannot be made.
    #[error("{0}: {1}; audit.spill_dir names a directory that the gateway may write to")]
    File(PathBuf, #[source] io::Error),
    /// Checkpoints cannot be written to their address.
    #[error("audit.checkpoint_to: {0}")]
    Client(#[source] reqwest::Error),
}

/// An audit log that is written, and what ends it.
#[derive(Debug)]
pub struct Started {
    /// Takes events.
    pub audit: Arc<Audit>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Started {
    /// Writes what was taken, and ends the chain.
    pub async fn stop(&self) {
        self.audit.end_sums();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Begins a chain, and writes from then on: a start waits for no database, nor for what others left behind. All that is
/// the writer's to bring into the log, before anything newer; meanwhile events are safe in the file, or wait.
///
/// # Errors
/// When the directory of the spill file does not do.
pub fn start(store: &Store, sources: Sources, options: &AuditOptions) -> Result<Started, AuditError> {
    let chain = sources.uid()?;
    let (left, own) = match &options.spill_dir {
        Some(folder) => files(folder, chain, options.spill_bytes)
            .map_err(|error| AuditError::File(folder.clone(), error))?,
        None => (Vec::new(), None),
    };
    if !left.is_empty() {
        tracing::warn!(gateways = left.len(), "what gateways that are no more had to audit is taken over");
    }
    let (queue, tally) = (Arc::new(Queue::new(options.queue)), Arc::new(Tally::default()));
    tally.has_file(own.is_some());
    let linger = if options.durability == Durability::Sync { Duration::ZERO } else { LINGER };
    let pace = Pace { linger, patience: options.patience };
    let backlog = Backlog::new(left, own, chain, Arc::clone(&tally));
    let log = store.audit_log(DEADLINE, options.signer.clone());
    let taken = (Arc::clone(&queue), Arc::clone(&tally));
    let quarantine = Quarantine::new(options.spill_dir.clone(), Arc::clone(&tally));
    let writer = Writer::new(taken, (quarantine, sources.clone()), pace, chain, backlog, log);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tasks.spawn(writer.run(stop.clone()));
    let keeping = Keeping { retain_days: options.retain_days, sources: sources.clone() };
    let owned = store.owned_audit_log(DEADLINE, options.signer.clone());
    tasks.spawn(keep::keep(owned, keeping, stop.clone()));
    if let Some((target, every)) = options.checkpoints.clone() {
        let checkpoints = Checkpoints {
            target: Target::new(target)?,
            every,
            store: store.clone(),
            sources: sources.clone(),
            signer: options.signer.clone(),
        };
        tasks.spawn(checkpoints.run(stop.clone()));
    }
    let (durability, accesses, signer) = (options.durability, options.accesses, options.signer.clone());
    let aggregator = Aggregator::new(options.key_rate, sources.csprng()?, sources.clock.now());
    let store = store.clone();
    let audit = Audit { queue, aggregator, tally, durability, accesses, sources, store, signer };
    let audit = Arc::new(audit);
    tasks.spawn(Arc::clone(&audit).write_sums(stop.clone()));
    Ok(Started { audit, tasks, stop })
}

/// The files of processes that are no more, and that of this one; none where the file system is full.
fn files(folder: &Path, chain: Uuid, most: u64) -> io::Result<(Vec<Spill>, Option<Spill>)> {
    let left = Spill::left_behind(folder)?;
    Ok((left, unless_full(Spill::create(folder, chain, most), folder)?))
}

/// A full file system is no reason to refuse a start: the database is there to take the rows.
fn unless_full<T>(created: io::Result<T>, folder: &Path) -> io::Result<Option<T>> {
    match created {
        Err(error) if is_full(&error) => {
            tracing::error!(
                folder = %folder.display(), %error,
                "audit spill file not created; while the database is away, audit rows wait in memory"
            );
            Ok(None)
        }
        created => created.map(Some),
    }
}

/// Whether the file system has no room. The cause may be wrapped by what was attempted.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind.is_some_and(|kind| matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)) {
            return true;
        }
        // What an `io::Error` wraps is not its source, but the source of its source.
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
            assert_eq!(start(wrapped), Ok(None), "as the first record fails");
        }
        assert_eq!(start(ErrorKind::PermissionDenied.into()), Err(ErrorKind::PermissionDenied));
    }
}
