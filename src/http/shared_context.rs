//! The context of a request to the administration API, shared by its handler and the write that it makes.

use std::sync::Arc;

use http::{Extensions, StatusCode};
use parking_lot::Mutex;

use super::context::RequestContext;
use super::intake::Intake;
use crate::model::audit::event::Event;
use crate::model::audit::write::AuditedCall;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;

/// A context that goes with its request as one of its extensions, and the permits of the request.
#[derive(Debug)]
pub struct SharedContext {
    /// The address of the client.
    pub client: ClientAddress,
    /// What the request holds of what requests share.
    pub intake: Intake,
    context: Mutex<RequestContext>,
    row: Mutex<AuditRow>,
}

/// What is known of a call's audit row before the call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuditRow {
    /// It is written with the answer.
    Due,
    /// It is committed with a change, with this status.
    Committed(u16),
    /// It is left out: it would repeat one that is written.
    Omitted,
}

impl AuditRow {
    /// Whether the answer with this status has no row yet.
    fn lacks(self, status: u16) -> bool {
        match self {
            Self::Due => true,
            Self::Committed(committed) => committed != status,
            Self::Omitted => false,
        }
    }
}

impl SharedContext {
    /// Shares the context of a request that has these permits.
    pub fn new(context: RequestContext, intake: Intake) -> Arc<Self> {
        let client = context.event.client;
        Arc::new(Self { client, intake, context: Mutex::new(context), row: Mutex::new(AuditRow::Due) })
    }

    /// The one of a request.
    ///
    /// # Errors
    /// [`Fault::Internal`] where the server has not added it.
    pub fn of(extensions: &Extensions) -> Result<&Arc<Self>, Fault> {
        extensions.get().ok_or_else(|| Fault::Internal("a request came without its context".to_owned()))
    }

    /// Reads or changes the context.
    pub fn with<T>(&self, visit: impl FnOnce(&mut RequestContext) -> T) -> T {
        visit(&mut self.context.lock())
    }

    /// A copy of the context.
    pub fn snapshot(&self) -> RequestContext {
        self.context.lock().clone()
    }

    /// Whether the answer with this status is still to be recorded. One that differs from the row that was committed with
    /// a change is: the deadline passed or the handler failed after the commit.
    pub fn is_unrecorded(&self, status: StatusCode) -> bool {
        self.row.lock().lacks(status.as_u16())
    }

    /// Whether a row was committed with a change.
    pub fn has_committed(&self) -> bool {
        matches!(*self.row.lock(), AuditRow::Committed(_))
    }

    /// Leaves the audit row out.
    pub fn omit_row(&self) {
        *self.row.lock() = AuditRow::Omitted;
    }
}

impl AuditedCall for SharedContext {
    fn event(&self) -> Event {
        let context = self.context.lock();
        Event { micros: context.micros(), ..context.event.clone() }
    }

    fn committed(&self, status: u16) {
        *self.row.lock() = AuditRow::Committed(status);
    }
}

#[cfg(test)]
mod tests {
    use super::AuditRow;

    #[test]
    fn answer_that_differs_from_the_committed_row_has_a_row() {
        assert!(AuditRow::Due.lacks(200));
        assert!(!AuditRow::Committed(204).lacks(204));
        assert!(AuditRow::Committed(204).lacks(503));
        assert!(!AuditRow::Omitted.lacks(200));
    }
}
