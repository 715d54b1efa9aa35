//! What is done when something went wrong: rows that fit no more into their chain, files that processes left behind,
//! events that were lost.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use time::OffsetDateTime;
use uuid::Uuid;

use super::spill::{Record, Spill};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::event::{Actor, Difference, Event};
use crate::store::StoreError;
use crate::store::audit::{AppendError, AuditLog};

/// Why what another process left behind cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The file.
    #[error("the spill file of the audit log cannot be read: {0}")]
    File(#[from] io::Error),
    /// The database.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl From<StoreError> for RecoverError {
    fn from(error: StoreError) -> Self {
        Self::Append(error.into())
    }
}

/// Writes a batch. Where its chain goes on otherwise, since the database was set back to an older state perhaps, its
/// events become a chain of their own, named after its last hash: found again, should this be tried twice.
pub(super) async fn salvage(
    log: &mut AuditLog,
    batch: &Batch,
    at: OffsetDateTime,
) -> Result<(), AppendError> {
    let foreign = match log.append(batch).await {
        Err(foreign @ AppendError::Foreign(..)) => foreign,
        done => return done,
    };
    let [first, ..] = batch.after.head.0.as_chunks::<16>().0 else { return Err(foreign) };
    let chain = Uuid::from_bytes(*first);
    tracing::error!(error = %foreign, %chain, "audit rows go into a chain of their own");
    log.open_chain(chain, at).await?;
    log.append(&batch.again(Chain::new(chain))).await?;
    Ok(log.end_chain(chain, at, false).await?)
}

/// Brings into the log what processes left in their files, and ends their chains.
pub(super) async fn take_over(
    log: &mut AuditLog,
    folder: &Path,
    at: OffsetDateTime,
) -> Result<(), RecoverError> {
    for mut spill in Spill::left_behind(folder)? {
        let mut chains = Vec::new();
        let mut rows = 0;
        while let Some((record, next)) = spill.peek()? {
            match record {
                Record::Chain(chain) => {
                    log.open_chain(chain, at).await?;
                    chains.push(chain);
                }
                Record::Rows(batch) => {
                    salvage(log, &batch, at).await?;
                    rows += batch.after.seq - batch.before.seq;
                }
            }
            spill.pass(next);
        }
        for chain in &chains {
            log.end_chain(*chain, at, false).await?;
        }
        tracing::warn!(
            ?chains,
            rows,
            "a gateway ended without a word; its audit chain is complete and ended"
        );
        spill.remove()?;
    }
    Ok(())
}

/// The event that says that so many others were lost.
pub(super) fn lost(count: u64, at: OffsetDateTime) -> Event {
    Event {
        at,
        request: "-".into(),
        trace: None,
        tenant: None,
        agent: None,
        slug: None,
        actor: Actor::default(),
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        client_name: None,
        protocol: None,
        session: None,
        method: Cow::Borrowed("audit/lost"),
        subject: Some(format!("{count} events").into()),
        outcome: "unavailable",
        status: None,
        micros: 0,
        bytes_in: 0,
        bytes_out: None,
        revision: None,
        difference: Difference::default(),
    }
}
