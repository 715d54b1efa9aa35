//! The audit row of a write: built from the summary of the write and its administration call, and committed with it.

use std::sync::Arc;

use super::outbox::OutboxRow;
use crate::model::audit::encoding;
use crate::model::audit::event::{ChangeHashes, Event, Outcome, subject};
use crate::model::audit::write::{AuditedCall, AuditedWrite};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::Revision;
use crate::model::system::System;

/// Summary of a write, for its audit row.
#[derive(Debug)]
pub struct WriteSummary {
    /// The object that was changed.
    pub subject: String,
    /// The revision of the change.
    pub revision: Revision,
    /// Whether the object is new.
    pub created: bool,
    /// The tenant of the object.
    pub tenant: Option<TenantId>,
    /// The agent of the object.
    pub agent: Option<AgentId>,
    /// Hashes before and after.
    pub difference: ChangeHashes,
}

impl WriteSummary {
    /// The summary of a write that creates an object if there was none before, and changes or deletes it otherwise.
    pub fn new(subject: impl Into<String>, revision: Revision, difference: ChangeHashes) -> Self {
        let created = difference.before.is_none() && difference.after.is_some();
        Self { subject: subject.into(), revision, created, tenant: None, agent: None, difference }
    }

    /// With the tenant and the agent of the object.
    #[must_use]
    pub fn owned_by(self, tenant: TenantId, agent: Option<AgentId>) -> Self {
        Self { tenant: Some(tenant), agent, ..self }
    }
}

/// The row of a write in the outbox, and the call whose row it is.
#[derive(Debug)]
pub struct Entry {
    pub(in crate::store) row: OutboxRow,
    call: Arc<dyn AuditedCall>,
    status: u16,
}

impl Entry {
    /// The audit row of a write with this summary; `None` if the write belongs to no call.
    ///
    /// # Errors
    /// [`Fault::Internal`] if a call makes a change without a summary: there is no change without its row.
    pub(in crate::store) fn of(
        audited: &AuditedWrite,
        summary: Option<WriteSummary>,
        system: &System,
    ) -> Result<Option<Self>, Fault> {
        let Some(call) = audited.call() else { return Ok(None) };
        let summary = summary.ok_or_else(|| Fault::Internal("a change has no summary".to_owned()))?;
        let status = audited.status(summary.created);
        let mut bytes = Vec::with_capacity(512);
        encoding::event(&mut bytes, &changed(call.event(), status, &summary, system));
        let row = OutboxRow { id: system.uid()?, event: bytes };
        Ok(Some(Self { row, call: Arc::clone(call), status }))
    }

    /// Records that the row is committed, so that the answer does not write it again.
    pub fn committed(self) {
        self.call.committed(self.status);
    }
}

/// The event of a call whose change is committed.
fn changed(call: Event, status: u16, summary: &WriteSummary, system: &System) -> Event {
    Event {
        at: system.clock.now(),
        status: Some(status),
        subject: call.subject.or_else(|| Some(subject(&summary.subject))),
        tenant: call.tenant.or(summary.tenant),
        agent: call.agent.or(summary.agent),
        revision: Some(summary.revision),
        difference: summary.difference,
        outcome: Outcome::Ok,
        ..call
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use parking_lot::Mutex;
    use time::OffsetDateTime;

    use super::{Entry, WriteSummary};
    use crate::model::audit::event::{ChangeHashes, Event};
    use crate::model::audit::write::{AuditedCall, AuditedWrite};
    use crate::model::fault::Fault;
    use crate::model::scope::Revision;
    use crate::model::system::System;

    #[derive(Debug, Default)]
    struct Call(Mutex<Vec<u16>>);

    impl AuditedCall for Call {
        fn event(&self) -> Event {
            let client = IpAddr::from(Ipv4Addr::LOCALHOST).into();
            Event::new(OffsetDateTime::UNIX_EPOCH, "r-1".into(), client, "PUT -".into())
        }

        fn committed(&self, status: u16) {
            self.0.lock().push(status);
        }
    }

    fn summary(created: bool) -> WriteSummary {
        WriteSummary { created, ..WriteSummary::new("a:b", Revision(7), ChangeHashes::default()) }
    }

    #[test]
    fn committed_row_has_the_status_of_the_answer() {
        let call = Arc::new(Call::default());
        let audited = AuditedWrite::new(Arc::clone(&call) as Arc<_>, 201, 200);
        for created in [true, false] {
            let entry = Entry::of(&audited, Some(summary(created)), &System::real()).unwrap();
            entry.unwrap().committed();
        }
        assert_eq!(*call.0.lock(), [201, 200]);
    }

    #[test]
    fn change_of_a_call_without_a_summary_is_refused() {
        let audited = AuditedWrite::new(Arc::new(Call::default()), 201, 200);
        let refused = Entry::of(&audited, None, &System::real()).err();
        assert!(matches!(refused, Some(Fault::Internal(_))), "{refused:?}");
        let unaudited = Entry::of(&AuditedWrite::UNAUDITED, None, &System::real());
        assert!(unaudited.is_ok_and(|entry| entry.is_none()));
    }
}
