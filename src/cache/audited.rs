//! The call that a write belongs to: passed from the surface to the transaction that commits its audit row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::audit::encoding;
use crate::model::audit::event::{Event, subject};
use crate::model::fault::Fault;
use crate::model::outcome::Outcome;
use crate::model::sources::Sources;
use crate::store::audit::outbox::OutboxRow;
use crate::store::write::WriteSummary;

tokio::task_local! {
    static CALL: Arc<AuditedCall>;
}

/// A call on its way: what is known of it so far, and whether its row is written.
#[derive(Debug)]
pub struct AuditedCall {
    event: Mutex<Event>,
    began: Instant,
    /// The statuses that the handler declared for a change that creates and for any other.
    statuses: Mutex<Option<(u16, u16)>>,
    written: AtomicBool,
}

impl AuditedCall {
    /// A call of which so much is known.
    pub fn new(event: Event) -> Arc<Self> {
        Arc::new(Self {
            event: Mutex::new(event),
            began: Instant::now(),
            statuses: Mutex::new(None),
            written: AtomicBool::new(false),
        })
    }

    /// Runs what the call asks for: writes in it are the call's.
    pub async fn run<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        CALL.scope(Arc::clone(self), work).await
    }

    /// The call that this runs for, if any.
    pub fn current() -> Option<Arc<Self>> {
        CALL.try_with(Arc::clone).ok()
    }

    /// Adds to what is known of the call that this runs for, if any.
    pub fn describe(change: impl FnOnce(&mut Event)) {
        let _ = CALL.try_with(|call| change(&mut call.event.lock()));
    }

    /// Declares the statuses that the current call answers with once its change is committed: one that creates, and any
    /// other.
    pub fn declare(created: u16, changed: u16) {
        CALL.try_with(|call| *call.statuses.lock() = Some((created, changed))).ok();
    }

    /// What is known of the call, and how long it took so far; `None` where its row is written already, or left out.
    pub fn unwritten(&self) -> Option<Event> {
        if self.written.load(Ordering::Acquire) {
            return None;
        }
        let mut event = self.event.lock().clone();
        event.micros = self.micros();
        Some(event)
    }

    /// Leaves its row out: it repeats one that is written.
    pub fn omit(&self) {
        self.written.store(true, Ordering::Release);
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn changed(&self, summary: &WriteSummary) -> Event {
        let mut event = self.event.lock().clone();
        event.status =
            self.statuses.lock().map(|(created, changed)| if summary.created { created } else { changed });
        event.subject = event.subject.or_else(|| Some(subject(&summary.subject)));
        event.tenant = event.tenant.or(summary.tenant);
        event.agent = event.agent.or(summary.agent);
        event.revision = Some(summary.revision);
        event.difference = summary.difference;
        event.outcome = Outcome::Ok;
        event.micros = self.micros();
        event
    }
}

/// The row of a write in the outbox, and the call whose row it is.
pub(super) struct Entry {
    pub(super) row: OutboxRow,
    call: Arc<AuditedCall>,
}

impl Entry {
    /// The audit row of a write with this summary; `None` where the write belongs to no call.
    pub(super) fn of(summary: Option<WriteSummary>, sources: &Sources) -> Result<Option<Self>, Fault> {
        let Some((call, summary)) = AuditedCall::current().zip(summary) else { return Ok(None) };
        let mut event = call.changed(&summary);
        event.at = sources.clock.now();
        let mut bytes = Vec::with_capacity(512);
        encoding::event(&mut bytes, &event);
        let row = OutboxRow { id: sources.uid()?, event: bytes };
        Ok(Some(Self { row, call }))
    }

    /// The write is committed: nothing else needs to write the row.
    pub(super) fn committed(self) {
        self.call.written.store(true, Ordering::Release);
    }
}
