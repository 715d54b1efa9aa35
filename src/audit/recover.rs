//! What is done when something went wrong: rows that fit no more into their chain, events that were lost.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use time::OffsetDateTime;
use uuid::Uuid;

use super::quarantine::Quarantine;
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::event::Event;
use crate::model::outcome::Outcome;
use crate::store::audit::{AppendError, AuditLog};

/// Rows that are in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// Where their chain was to stand before them.
    pub(super) before: Chain,
    /// Where it was to stand after them.
    pub(super) after: Chain,
    /// Whether they fitted into it no more, and are in a chain of their own.
    pub(super) elsewhere: bool,
}

/// Writes a batch. Where its chain goes on otherwise, since the database was set back to an older state perhaps, its
/// events become a chain of their own, named after its last hash: found again, should this be tried twice.
pub(super) async fn salvage(
    log: &mut AuditLog,
    quarantine: &Quarantine,
    batch: &Batch,
    at: OffsetDateTime,
) -> Result<Kept, AppendError> {
    let kept = |elsewhere| Kept { before: batch.before, after: batch.after, elsewhere };
    let foreign = match quarantine.append(log, batch, at).await {
        Err(AppendError::Foreign(head, place)) => {
            // Rows that were tried in smaller pieces, by a process that ended while it was at it.
            if let Some(rest) = batch.since(head) {
                return quarantine.append(log, &rest, at).await.map(|()| kept(false));
            }
            AppendError::Foreign(head, place)
        }
        done => return done.map(|()| kept(false)),
    };
    let [first, ..] = batch.after.head.0.as_chunks::<16>().0 else { return Err(foreign) };
    let chain = Uuid::from_bytes(*first);
    tracing::error!(error = %foreign, %chain, "audit rows go into a chain of their own");
    log.open_chain(chain, at).await?;
    quarantine.append(log, &batch.again(Chain::new(chain)), at).await?;
    log.interrupt_chain(chain, at).await?;
    Ok(kept(true))
}

/// The event that says that so many others were lost.
pub(super) fn lost(count: u64, at: OffsetDateTime) -> Event {
    Event {
        subject: Some(format!("{count} events").into()),
        outcome: Outcome::Unavailable,
        ..Event::new(at, "-".into(), IpAddr::V4(Ipv4Addr::UNSPECIFIED).into(), Cow::Borrowed("audit/lost"))
    }
}
