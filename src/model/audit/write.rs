//! The administration call that a write belongs to: passed from the surface to the transaction that commits its audit row.

use std::fmt::Debug;
use std::sync::Arc;

use super::event::Event;

/// A call whose audit row may commit with a change.
pub trait AuditedCall: Debug + Send + Sync {
    /// The event of the call so far, with its duration so far.
    fn event(&self) -> Event;

    /// Records that the row of a change with this status is committed.
    fn committed(&self, status: u16);
}

/// The call that a write belongs to, and the statuses that it is answered with once the write is committed.
#[derive(Debug, Clone)]
pub struct AuditedWrite {
    call: Option<Arc<dyn AuditedCall>>,
    created: u16,
    changed: u16,
}

impl AuditedWrite {
    /// A write that belongs to no administration call, and has no audit row of its own.
    pub const UNAUDITED: Self = Self { call: None, created: 0, changed: 0 };

    /// A write of a call that is answered with one of these statuses: one for a change that creates its object, and one
    /// for any other.
    pub fn new(call: Arc<dyn AuditedCall>, created: u16, changed: u16) -> Self {
        Self { call: Some(call), created, changed }
    }

    /// The call, if the write belongs to one.
    pub fn call(&self) -> Option<&Arc<dyn AuditedCall>> {
        self.call.as_ref()
    }

    /// Whether the write belongs to a call with a valid credential.
    pub fn has_credential(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.event().actor.kind.has_credential())
    }

    /// The status of the answer to a committed change.
    pub fn status(&self, created: bool) -> u16 {
        if created { self.created } else { self.changed }
    }
}
