//! A transaction that writers of one scope share: each leaves it open to the next one in the queue and queues again; the
//! first whose turn it is for the second time commits it for all.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::model::fault::Fault;
use crate::model::scope::{Revision, Scope};
use crate::model::trace::WriteSpan;
use crate::store::write::{Transaction, Written};

/// The maximum number of writes that share a transaction.
const MAX_WRITES: usize = 64;
/// The size of the definitions in a transaction, in bytes, from which on no further write joins it.
const MAX_BYTES: usize = 8 << 20;

/// How a transaction ended.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// It was committed.
    Committed,
    /// Another write failed before the commit: nothing was written.
    RolledBack,
    /// The commit failed, or had no answer.
    Failed(Fault),
}

/// An open transaction between two of its writes.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) transaction: Transaction,
    pub(super) members: SharedWriters,
}

/// The writes of an open transaction, whose callers wait for its end. They are rolled back if this is dropped.
#[derive(Debug)]
pub(super) struct SharedWriters {
    /// The share of the pool that the transaction holds.
    share: Option<OwnedSemaphorePermit>,
    callers: Vec<oneshot::Sender<Outcome>>,
    /// The newest revision of the scope.
    revisions: Vec<(Scope, Revision)>,
    /// The spans of the writes whose traces are exported.
    spans: Vec<WriteSpan>,
    bytes: usize,
}

impl SharedWriters {
    pub(super) fn new(share: Option<OwnedSemaphorePermit>) -> Self {
        Self { share, callers: Vec::new(), revisions: Vec::new(), spans: Vec::new(), bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// Whether another write may join.
    pub(super) fn have_room(&self) -> bool {
        self.callers.len() < MAX_WRITES && self.bytes < MAX_BYTES
    }

    /// Adds a write, with its spans. Returns the receiver of the transaction's outcome.
    pub(super) fn add(&mut self, written: &Written, spans: Vec<WriteSpan>) -> oneshot::Receiver<Outcome> {
        let (caller, outcome) = oneshot::channel();
        self.callers.push(caller);
        self.bytes += written.bytes;
        self.spans.extend(spans);
        if !written.revisions.is_empty() {
            self.revisions.clone_from(&written.revisions);
        }
        outcome
    }

    /// The writes and the share, for the commit: from now on it is not known whether it takes place.
    pub(super) fn commit(mut self) -> (Committing, Option<OwnedSemaphorePermit>) {
        let (callers, revisions) = (std::mem::take(&mut self.callers), std::mem::take(&mut self.revisions));
        let spans = std::mem::take(&mut self.spans);
        (Committing { callers, revisions, spans }, self.share.take())
    }
}

impl Drop for SharedWriters {
    fn drop(&mut self) {
        answer(&mut self.callers, &Outcome::RolledBack);
    }
}

/// The writes of a transaction that is being committed.
#[derive(Debug)]
pub(super) struct Committing {
    callers: Vec<oneshot::Sender<Outcome>>,
    pub(super) revisions: Vec<(Scope, Revision)>,
    pub(super) spans: Vec<WriteSpan>,
}

impl Committing {
    /// Answers the callers.
    pub(super) fn answer(mut self, outcome: &Outcome) {
        answer(&mut self.callers, outcome);
    }
}

fn answer(callers: &mut Vec<oneshot::Sender<Outcome>>, outcome: &Outcome) {
    for caller in callers.drain(..) {
        // A caller past its deadline does not receive it.
        let _ = caller.send(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::{MAX_BYTES, MAX_WRITES, Outcome, SharedWriters};
    use crate::model::scope::{Revision, Scope};
    use crate::model::trace::{SpanContext, WriteSpan};
    use crate::store::write::Written;

    fn members() -> SharedWriters {
        SharedWriters::new(None)
    }

    fn written(revision: Option<i64>, bytes: usize) -> Written {
        let revisions = revision.map(|revision| (Scope::GATEWAY, Revision(revision))).into_iter().collect();
        Written { revisions, entry: None, bytes }
    }

    #[test]
    fn transaction_is_bounded_in_writes_and_bytes() {
        let mut members = self::members();
        for _ in 0..MAX_WRITES {
            assert!(members.have_room());
            members.add(&written(None, 1), Vec::new());
        }
        assert!(!members.have_room());
        let mut members = self::members();
        members.add(&written(None, MAX_BYTES), Vec::new());
        assert!(!members.have_room());
    }

    #[test]
    fn newest_revision_and_all_spans_are_published() {
        let mut members = members();
        let span = |revision| WriteSpan {
            scope: Scope::GATEWAY,
            revision: Revision(revision),
            span: SpanContext { trace: 1, span: 2 },
        };
        for (revision, spans) in [(Some(7), vec![span(7)]), (Some(8), vec![span(8)]), (None, vec![])] {
            members.add(&written(revision, 0), spans);
        }
        let committing = members.commit().0;
        assert_eq!(committing.revisions, [(Scope::GATEWAY, Revision(8))]);
        assert_eq!(committing.spans, [span(7), span(8)]);
    }

    #[test]
    fn outcome_is_unknown_only_once_the_commit_began() {
        let mut dropped = members();
        let mut caller = dropped.add(&written(None, 0), Vec::new());
        drop(dropped);
        assert!(matches!(caller.try_recv(), Ok(Outcome::RolledBack)));
        let mut committing = members();
        let mut caller = committing.add(&written(None, 0), Vec::new());
        drop(committing.commit());
        assert!(matches!(caller.try_recv(), Err(TryRecvError::Closed)));
    }
}
