//! Quarantine and recovery: rows that the database rejects as invalid data (SQLSTATE class 22) are written to a file, so
//! that the writer can continue; rows that do not fit their chain any more are appended to a new one, and the loss of
//! events is recorded.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::metrics::AuditMetrics;
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::audit::event::{Event, Outcome};
use crate::model::audit::ledger::MissingRows;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Extension of quarantine files.
const EXTENSION: &str = "quarantined";
/// Maximum size of a file in bytes; of further rows only the position in the chain is kept.
const MAX_BYTES: u64 = 16 << 20;

/// Where rejected rows are written.
#[derive(Debug, Clone)]
pub(super) struct Quarantine {
    /// The directory of the spill files, if any.
    folder: Option<PathBuf>,
    metrics: Arc<AuditMetrics>,
}

impl Quarantine {
    pub(super) fn new(folder: Option<PathBuf>, metrics: Arc<AuditMetrics>) -> Self {
        Self { folder, metrics }
    }

    /// Appends a batch, quarantining the rows that the database rejects.
    ///
    /// # Errors
    /// Those of [`AuditLog::append`], except rejected data.
    pub(super) async fn append(
        &self,
        log: &mut AuditLog,
        batch: &Batch,
        at: OffsetDateTime,
    ) -> Result<(), AppendError> {
        let mut refused = match log.append(batch).await {
            Err(error) if error.is_data_exception() => vec![(batch.clone(), error)],
            done => return done,
        };
        // The part that comes first is on top, and was rejected as a whole.
        while let Some((batch, error)) = refused.pop() {
            let Some((first, second)) = batch.halves() else {
                self.set_aside(batch.clone(), &error).await;
                log.quarantine(missing(&batch), at).await?;
                continue;
            };
            match log.append(&first).await {
                Err(again) if again.is_data_exception() => {
                    refused.push((second, error));
                    refused.push((first, again));
                }
                done => {
                    done?;
                    refused.push((second, error));
                }
            }
        }
        Ok(())
    }

    /// Moves at most `most` rows from the outbox, quarantining a row that the log rejects.
    ///
    /// # Errors
    /// Those of [`AuditLog::move_outbox`], except rejected data.
    pub(super) async fn move_outbox(
        &self,
        log: &mut AuditLog,
        (chain, at): (ChainPosition, OffsetDateTime),
        mut most: i64,
    ) -> Result<Moved, AppendError> {
        loop {
            match log.move_outbox(chain, most).await {
                Err(error) if error.is_data_exception() && most > 1 => most /= 2,
                Err(error) if error.is_data_exception() => {
                    let Some(row) = log.first_of_outbox().await? else { return Ok(Moved::Done(0, chain)) };
                    let mut batch = Batch::after(chain);
                    batch.push(&row.event);
                    let (after, place) = (batch.after, missing(&batch));
                    self.set_aside(batch, &error).await;
                    return Ok(match log.quarantine_outbox(row.id, place, at).await {
                        Ok(true) => Moved::Done(1, after),
                        Ok(false) => Moved::Done(0, chain),
                        // The end of the chain is read before anything else is appended.
                        Err(_) => Moved::InDoubt,
                    });
                }
                done => return done,
            }
        }
    }

    /// Writes a row to the quarantine file and logs it. If that fails, only its position in the chain is
    /// kept.
    async fn set_aside(&self, batch: Batch, error: &AppendError) {
        self.metrics.add_quarantined();
        let ChainPosition { id: chain, seq, .. } = batch.after;
        let file =
            self.folder.as_ref().map(|folder| folder.join(chain.to_string()).with_extension(EXTENSION));
        let written = match file.clone() {
            Some(file) => tokio::task::spawn_blocking(move || write(&file, &batch.rows)).await,
            None => Ok(Err(io::Error::other("no audit spill directory is configured"))),
        };
        let file = file.as_ref().map(|file| tracing::field::display(file.display()));
        match written.unwrap_or_else(|ended| Err(io::Error::other(ended))) {
            Ok(()) => tracing::error!(%error, %chain, row = seq, file, "audit row quarantined"),
            Err(failed) => {
                tracing::error!(%error, %chain, row = seq, file, %failed, "audit row quarantined without a copy");
            }
        }
    }
}

fn missing(batch: &Batch) -> MissingRows {
    MissingRows { before: batch.before, after: batch.after }
}

fn write(path: &Path, row: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() + row.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("the quarantine file is full"));
    }
    file.write_all(row)?;
    file.sync_data()?;
    // The directory entry as well.
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// Rows that were appended to the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Appended {
    /// The end of their chain before them.
    pub(super) before: ChainPosition,
    /// The end of their chain after them.
    pub(super) after: ChainPosition,
    /// Whether they did not fit their chain and were appended to one of their own.
    pub(super) relocated: bool,
}

/// Appends a batch. If its chain continues otherwise in the database, for example after a restored backup,
/// the events are appended to a new chain. Its id is derived from the batch's last hash, so that a repeated
/// attempt finds it.
pub(super) async fn salvage(
    log: &mut AuditLog,
    quarantine: &Quarantine,
    batch: &Batch,
    at: OffsetDateTime,
) -> Result<Appended, AppendError> {
    let appended = |relocated| Appended { before: batch.before, after: batch.after, relocated };
    let foreign = match quarantine.append(log, batch, at).await {
        Err(AppendError::Foreign(head, place)) => {
            // A terminated process may have appended a part of the batch.
            if let Some(rest) = batch.rows_after(head) {
                return quarantine.append(log, &rest, at).await.map(|()| appended(false));
            }
            AppendError::Foreign(head, place)
        }
        done => return done.map(|()| appended(false)),
    };
    let [first, ..] = batch.after.head.0.as_chunks::<16>().0 else { return Err(foreign) };
    let chain = Uuid::from_bytes(*first);
    tracing::error!(error = %foreign, %chain, "audit rows do not fit their chain; appending them to a new one");
    log.open_chain(chain, at).await?;
    quarantine.append(log, &batch.rechained(ChainPosition::new(chain)), at).await?;
    log.interrupt_chain(chain, at).await?;
    Ok(appended(true))
}

/// The event that records the loss of `count` events.
pub(super) fn loss_event(count: u64, at: OffsetDateTime) -> Event {
    Event {
        subject: Some(format!("{count} events").into()),
        outcome: Outcome::Unavailable,
        ..Event::new(at, "-".into(), IpAddr::V4(Ipv4Addr::UNSPECIFIED).into(), Cow::Borrowed("audit/lost"))
    }
}
