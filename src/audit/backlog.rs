//! The rows that wait in spill files: those of terminated processes, oldest first, then those of this
//! process.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use uuid::Uuid;

use super::metrics::AuditMetrics;
use super::spill::{NextContent, Record, Spill, SpillError};
use crate::model::audit::chain::{Batch, ChainPosition};

/// The next database operation for the backlog.
#[derive(Debug)]
pub(super) enum Step {
    /// Ends the chain of a terminated process, or one that could not be continued, and opens another.
    SwitchChain { ended: Option<Uuid>, opened: Option<Uuid> },
    /// Appends rows to their chain.
    Rows(Batch),
    /// Records corruption of a spill file, after which the file continues with `chain`, whose last row is
    /// `state`. If that is another chain, the one before ends.
    Damaged { ended: Option<Uuid>, chain: Uuid, state: Option<ChainPosition> },
}

/// Spill files in the order in which they are drained.
#[derive(Debug)]
pub(super) struct Backlog {
    orphaned: VecDeque<Spill>,
    own: Option<Spill>,
    /// The chain of a process without a spill file, until it is opened.
    unopened: Option<Uuid>,
    /// The chain that was last opened in the database.
    chain: Option<Uuid>,
    /// Number of rows appended since the backlog was last empty.
    rows: i64,
    pending: Option<PendingStep>,
    metrics: Arc<AuditMetrics>,
}

/// State after the database has completed the current step.
#[derive(Debug)]
struct PendingStep {
    /// Offset up to which the file is drained; `None` once it is complete.
    read: Option<u64>,
    chain: Option<Uuid>,
    rows: i64,
}

impl Backlog {
    /// The backlog of a process whose chain is `chain`. The chain is opened by the record in its spill file,
    /// or, without a spill file, by this backlog.
    pub(super) fn new(
        orphaned: Vec<Spill>,
        own: Option<Spill>,
        chain: Uuid,
        metrics: Arc<AuditMetrics>,
    ) -> Self {
        let unopened = own.is_none().then_some(chain);
        let backlog =
            Self { orphaned: orphaned.into(), own, unopened, chain: None, rows: 0, pending: None, metrics };
        backlog.update_metrics();
        backlog
    }

    /// Whether the database has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.orphaned.is_empty() && self.unopened.is_none() && self.own.as_ref().is_none_or(Spill::is_drained)
    }

    /// Whether rows can be added.
    pub(super) fn has_file(&self) -> bool {
        self.own.is_some()
    }

    /// Appends a record to this process's spill file and syncs it.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), SpillError> {
        let appended = self.own.as_mut().ok_or(SpillError::NoDirectory)?.append(record);
        self.update_metrics();
        appended
    }

    /// Updates the metric of waiting bytes.
    fn update_metrics(&self) {
        self.metrics.set_spilled_bytes(self.orphaned.iter().chain(&self.own).map(Spill::waiting).sum());
    }

    /// The first step, the same on each call until it is [`done`](Self::done); `None` if there is none.
    pub(super) fn first(&mut self) -> io::Result<Option<Step>> {
        let file = self.orphaned.front_mut().or(self.own.as_mut());
        let next = file.as_deref().map(Spill::peek).transpose()?.flatten();
        let (step, pending) = match next {
            Some((NextContent::Damaged(state), read)) => {
                if file.is_some_and(Spill::report_damage) {
                    self.metrics.add_damage();
                }
                let step = self.after_damage(state);
                let chain = state.map(|state| state.id).or(self.chain);
                (step, PendingStep { read: Some(read), chain, rows: 0 })
            }
            Some((NextContent::Record(Record::Rows(batch)), read)) => {
                let rows = batch.after.seq - batch.before.seq;
                (Step::Rows(batch), PendingStep { read: Some(read), chain: self.chain, rows })
            }
            Some((NextContent::Record(Record::Chain(chain)), read)) => {
                let step = Step::SwitchChain { ended: self.chain, opened: Some(chain) };
                (step, PendingStep { read: Some(read), chain: Some(chain), rows: 0 })
            }
            None if self.orphaned.is_empty() => {
                let Some(chain) = self.unopened else { return Ok(None) };
                let step = Step::SwitchChain { ended: None, opened: Some(chain) };
                (step, PendingStep { read: None, chain: Some(chain), rows: 0 })
            }
            None => {
                let step = Step::SwitchChain { ended: self.chain, opened: None };
                (step, PendingStep { read: None, chain: None, rows: 0 })
            }
        };
        self.pending = Some(pending);
        Ok(Some(step))
    }

    fn after_damage(&self, state: Option<ChainPosition>) -> Step {
        let Some(chain) = state.map(|state| state.id).or(self.chain) else {
            return Step::SwitchChain { ended: None, opened: None };
        };
        Step::Damaged { ended: self.chain.filter(|known| *known != chain), chain, state }
    }

    /// Records that the database has completed the first step.
    pub(super) fn done(&mut self) -> io::Result<()> {
        let done = self.advance();
        self.update_metrics();
        done
    }

    fn advance(&mut self) -> io::Result<()> {
        let Some(PendingStep { read, chain, rows }) = self.pending.take() else { return Ok(()) };
        let ended = std::mem::replace(&mut self.chain, chain);
        self.rows += rows;
        match (self.orphaned.front_mut(), read) {
            (Some(file), Some(read)) => file.advance(read),
            (Some(file), None) => {
                let (chain, rows) = (ended.map(tracing::field::display), std::mem::take(&mut self.rows));
                let torn_bytes = file.waiting();
                match file.kept_as() {
                    None => {
                        tracing::warn!(chain, rows, torn_bytes, "audit chain of an unclean exit completed");
                    }
                    Some(kept) => tracing::error!(
                        chain, rows, torn_bytes, kept_as = %kept.display(),
                        "audit chain of an unclean exit ended; its spill file is corrupt and kept"
                    ),
                }
                self.orphaned.pop_front().map(Spill::remove).transpose()?;
            }
            (None, _) => return self.advance_own(read),
        }
        Ok(())
    }

    fn advance_own(&mut self, read: Option<u64>) -> io::Result<()> {
        self.unopened = None;
        let Some((own, read)) = self.own.as_mut().zip(read) else { return Ok(()) };
        own.advance(read);
        if own.is_drained() && self.rows > 0 {
            tracing::info!(rows = std::mem::take(&mut self.rows), "audit spill file drained");
        }
        own.truncate()
    }

    /// Removes this process's spill file after its chain was closed.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.own.take().map_or(Ok(()), Spill::remove)
    }
}
