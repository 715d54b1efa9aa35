//! Recovery: appending rows that do not fit their chain any more, and recording the loss of events.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use time::OffsetDateTime;
use uuid::Uuid;

use super::quarantine::Quarantine;
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::event::Event;
use crate::model::outcome::Outcome;
use crate::store::audit::{AppendError, AuditLog};

/// Rows that were appended to the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Appended {
    /// The end of their chain before them.
    pub(super) before: Chain,
    /// The end of their chain after them.
    pub(super) after: Chain,
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
    quarantine.append(log, &batch.rechained(Chain::new(chain)), at).await?;
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
