//! Builds batches of the events that are queued.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::audit::quarantine::loss_event;
use crate::audit::recorder::{EventBatch, EventQueue};
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::audit::encoding;
use crate::model::system::System;

/// Builds batches in memory that is reused: allocating it each time would cost more than encoding the rows.
#[derive(Default)]
pub(super) struct BatchBuilder {
    /// The last events that were taken.
    events: EventBatch,
    /// Memory for the rows of the next batch.
    rows: Vec<u8>,
    /// The number of lost events that rows report.
    reported_shed: u64,
}

impl BatchBuilder {
    /// Takes events from the queue, as rows after the end of a chain; with the channels to signal once they are durable. An
    /// event for those that were lost precedes them.
    pub(super) fn take(
        &mut self,
        queue: &EventQueue,
        chain: ChainPosition,
        system: &System,
    ) -> (Batch, Vec<oneshot::Sender<()>>) {
        self.events = queue.take(std::mem::take(&mut self.events));
        let mut batch = Batch::with_buffer(chain, std::mem::take(&mut self.rows));
        batch.reserve(self.events.len(), self.events.size());
        let shed = queue.shed_count();
        if shed > self.reported_shed {
            let mut event = Vec::new();
            encoding::event(&mut event, &loss_event(shed - self.reported_shed, system.clock.now()));
            batch.push(&event);
            self.reported_shed = shed;
        }
        self.events.iter().for_each(|(version, event)| batch.push_versioned(version, event));
        (batch, std::mem::take(&mut self.events.waiters))
    }

    /// When the first of the last events that were taken was queued.
    pub(super) fn began(&self) -> Option<Instant> {
        self.events.began
    }

    /// Reuses the memory of a written batch, unless something else still needs it.
    pub(super) fn reuse(&mut self, batch: Option<Batch>) {
        self.rows = batch.map(Batch::into_buffer).unwrap_or_default();
    }
}
