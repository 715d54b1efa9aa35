//! The spans of recent writes to an agent, until their changes are marked in its streams.
//!
//! They arrive with hints, before the revisions. One that is lost, or arrives after its change was marked, is not used.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::model::scope::Revision;
use crate::model::trace::SpanContext;

/// Maximum number of writes of an agent that wait to be marked; the oldest are dropped.
const MAX_WRITES: usize = 64;
/// Maximum number of events of one write that link to it, on all streams of this replica.
const MAX_EVENTS: usize = 64;

/// The spans of recent writes. Takes no memory unless traces of writes are exported.
#[derive(Debug, Default)]
pub(super) struct WriteSpans(VecDeque<TracedWrite>);

/// A write whose trace is exported.
#[derive(Debug)]
pub(super) struct TracedWrite {
    revision: Revision,
    span: SpanContext,
    /// The number of events that link to it.
    events: AtomicUsize,
}

impl WriteSpans {
    /// Adds a write; the first one of a revision counts.
    pub(super) fn add(&mut self, revision: Revision, span: SpanContext) {
        if self.of(revision).is_some() {
            return;
        }
        if self.0.len() == MAX_WRITES {
            self.0.pop_front();
        }
        self.0.push_back(TracedWrite { revision, span, events: AtomicUsize::new(0) });
    }

    /// The write that made a revision.
    pub(super) fn of(&self, revision: Revision) -> Option<&TracedWrite> {
        self.0.iter().find(|write| write.revision == revision)
    }

    /// Removes the writes up to a revision.
    pub(super) fn end(&mut self, until: Revision) {
        self.0.retain(|write| write.revision > until);
    }
}

impl TracedWrite {
    /// The span for a link from one more event, unless there are [`MAX_EVENTS`].
    pub(super) fn link(&self) -> Option<SpanContext> {
        (self.events.fetch_add(1, Ordering::Relaxed) < MAX_EVENTS).then_some(self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_EVENTS, MAX_WRITES, WriteSpans};
    use crate::model::scope::Revision;
    use crate::model::trace::SpanContext;

    fn span(span: u64) -> SpanContext {
        SpanContext { trace: 1, span }
    }

    #[test]
    fn writes_and_events_are_bounded() {
        let mut spans = WriteSpans::default();
        for revision in 1..=i64::try_from(MAX_WRITES).unwrap() + 1 {
            spans.add(Revision(revision), span(revision.unsigned_abs()));
            spans.add(Revision(revision), span(99));
        }
        assert!(spans.of(Revision(1)).is_none() && spans.of(Revision(2)).is_some());
        let write = spans.of(Revision(7)).unwrap();
        let links: Vec<_> = (0..=MAX_EVENTS).map(|_| write.link()).collect();
        assert!(links[..MAX_EVENTS].iter().all(|link| *link == Some(span(7))), "{links:?}");
        assert_eq!(links[MAX_EVENTS], None);
        spans.end(Revision(7));
        assert!(spans.of(Revision(7)).is_none() && spans.of(Revision(8)).is_some());
    }
}
