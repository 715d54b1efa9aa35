//! What is done when something went wrong: rows that fit no more into their chain, events that were lost.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::event::{Actor, Difference, Event};
use crate::store::audit::{AppendError, AuditLog};

/// Writes a batch. Where its chain goes on otherwise, since the database was set back to an older state perhaps, its
/// events become a chain of their own, named after its last hash: found again, should this be tried twice.
pub(super) async fn salvage(
    log: &mut AuditLog,
    batch: &Batch,
    at: OffsetDateTime,
) -> Result<(), AppendError> {
    let foreign = match log.append(batch).await {
        Err(AppendError::Foreign(head, place)) => {
            // Rows that were tried in smaller pieces, by a process that ended while it was at it.
            if let Some(rest) = batch.since(head) {
                return log.append(&rest).await;
            }
            AppendError::Foreign(head, place)
        }
        done => return done,
    };
    let [first, ..] = batch.after.head.0.as_chunks::<16>().0 else { return Err(foreign) };
    let chain = Uuid::from_bytes(*first);
    tracing::error!(error = %foreign, %chain, "audit rows go into a chain of their own");
    log.open_chain(chain, at).await?;
    log.append(&batch.again(Chain::new(chain))).await?;
    Ok(log.end_chain(chain, at, false).await?)
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
