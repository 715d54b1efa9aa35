//! Rows that the database refuses for what they hold (SQLSTATE class 22): kept in a file, so that the log goes on.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use time::OffsetDateTime;

use super::tally::Tally;
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::ledger::Missing;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// The extension of the files.
const EXTENSION: &str = "quarantined";
/// Most bytes of one file; rows past it keep their place in the chain alone.
const MOST_BYTES: u64 = 16 << 20;

/// Where refused rows go.
#[derive(Debug, Clone)]
pub(super) struct Quarantine {
    /// The directory of the spill files; `None` where there is none.
    folder: Option<PathBuf>,
    tally: Arc<Tally>,
}

impl Quarantine {
    pub(super) fn new(folder: Option<PathBuf>, tally: Arc<Tally>) -> Self {
        Self { folder, tally }
    }

    /// Appends a batch. A row in it that the database refuses is quarantined; the others are in the log.
    ///
    /// # Errors
    /// As of [`AuditLog::append`], but for rows that are refused for what they hold.
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
        // The part that comes first is on top, and refused as a whole.
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

    /// Moves rows from the outbox, at most `most`. One that the log refuses is quarantined.
    ///
    /// # Errors
    /// As of [`AuditLog::move_outbox`].
    pub(super) async fn move_outbox(
        &self,
        log: &mut AuditLog,
        (chain, at): (Chain, OffsetDateTime),
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
                        // Where the chain stands is asked before anything else is added to it.
                        Err(_) => Moved::InDoubt,
                    });
                }
                done => return done,
            }
        }
    }

    /// Writes a row to a file and says so. Where that fails, its place in the chain is all that is kept of it.
    async fn set_aside(&self, batch: Batch, error: &AppendError) {
        self.tally.quarantine();
        let Chain { id: chain, seq, .. } = batch.after;
        let file =
            self.folder.as_ref().map(|folder| folder.join(chain.to_string()).with_extension(EXTENSION));
        let written = match file.clone() {
            Some(file) => tokio::task::spawn_blocking(move || write(&file, &batch.rows)).await,
            None => Ok(Err(io::Error::other("there is no audit.spill_dir"))),
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

fn missing(batch: &Batch) -> Missing {
    Missing { before: batch.before, after: batch.after }
}

fn write(path: &Path, row: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.len() + row.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("the file is full"));
    }
    file.write_all(row)?;
    file.sync_data()?;
    // The name as well.
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}
