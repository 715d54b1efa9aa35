//! What waits in files until the database takes it: of processes that are no more, the oldest first, then of this one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use uuid::Uuid;

use super::spill::{Next, Record, Spill, SpillError};
use super::tally::Tally;
use crate::model::audit::chain::{Batch, Chain};

/// What the database is to do with what waits first.
#[derive(Debug)]
pub(super) enum Step {
    /// A chain whose process is no more, or that could not go on, ends; another begins.
    Turn { ended: Option<Uuid>, begun: Option<Uuid> },
    /// These rows are added to their chain.
    Rows(Batch),
    /// A spill file is corrupt. Behind that it goes on with `chain`, which stood at `state`; where that is another chain
    /// than before, the one before ends.
    Damaged { ended: Option<Uuid>, chain: Uuid, state: Option<Chain> },
}

/// What waits, in the order in which the database gets it.
#[derive(Debug)]
pub(super) struct Backlog {
    left: VecDeque<Spill>,
    own: Option<Spill>,
    /// The chain of a process without a file, until it has begun.
    unopened: Option<Uuid>,
    /// The chain that the database is at.
    chain: Option<Uuid>,
    /// Rows that it got since it had nothing to catch up with.
    rows: i64,
    under_way: Option<UnderWay>,
    tally: Arc<Tally>,
}

/// What holds once the database has done the step that it was given.
#[derive(Debug)]
struct UnderWay {
    /// How far the file is read; `None` where all is done with.
    read: Option<u64>,
    chain: Option<Uuid>,
    rows: i64,
}

impl Backlog {
    /// That of a process that begins `chain`. Its file says so; without one, this does.
    pub(super) fn new(left: Vec<Spill>, own: Option<Spill>, chain: Uuid, tally: Arc<Tally>) -> Self {
        let unopened = own.is_none().then_some(chain);
        let backlog = Self { left: left.into(), own, unopened, chain: None, rows: 0, under_way: None, tally };
        backlog.count();
        backlog
    }

    /// Whether the database has all of it.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.unopened.is_none() && self.own.as_ref().is_none_or(Spill::is_drained)
    }

    /// Whether it can hold rows.
    pub(super) fn has_file(&self) -> bool {
        self.own.is_some()
    }

    /// Adds to it, on disk.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), SpillError> {
        let appended = self.own.as_mut().ok_or(SpillError::Nowhere)?.append(record);
        self.count();
        appended
    }

    /// Tells how much waits.
    fn count(&self) {
        self.tally.spill(self.left.iter().chain(&self.own).map(Spill::waiting).sum());
    }

    /// What is first, as often as it is asked for until it is done; `None` where there is nothing.
    pub(super) fn first(&mut self) -> io::Result<Option<Step>> {
        let file = self.left.front_mut().or(self.own.as_mut());
        let next = file.as_deref().map(Spill::peek).transpose()?.flatten();
        let (step, under_way) = match next {
            Some((Next::Damaged(state), read)) => {
                if file.is_some_and(Spill::report_damage) {
                    self.tally.damage();
                }
                let step = self.after_damage(state);
                let chain = state.map(|state| state.id).or(self.chain);
                (step, UnderWay { read: Some(read), chain, rows: 0 })
            }
            Some((Next::Record(Record::Rows(batch)), read)) => {
                let rows = batch.after.seq - batch.before.seq;
                (Step::Rows(batch), UnderWay { read: Some(read), chain: self.chain, rows })
            }
            Some((Next::Record(Record::Chain(chain)), read)) => {
                let turn = Step::Turn { ended: self.chain, begun: Some(chain) };
                (turn, UnderWay { read: Some(read), chain: Some(chain), rows: 0 })
            }
            None if self.left.is_empty() => {
                let Some(chain) = self.unopened else { return Ok(None) };
                let turn = Step::Turn { ended: None, begun: Some(chain) };
                (turn, UnderWay { read: None, chain: Some(chain), rows: 0 })
            }
            None => {
                let turn = Step::Turn { ended: self.chain, begun: None };
                (turn, UnderWay { read: None, chain: None, rows: 0 })
            }
        };
        self.under_way = Some(under_way);
        Ok(Some(step))
    }

    fn after_damage(&self, state: Option<Chain>) -> Step {
        let Some(chain) = state.map(|state| state.id).or(self.chain) else {
            return Step::Turn { ended: None, begun: None };
        };
        Step::Damaged { ended: self.chain.filter(|known| *known != chain), chain, state }
    }

    /// The database has done what was first.
    pub(super) fn done(&mut self) -> io::Result<()> {
        let done = self.pass();
        self.count();
        done
    }

    fn pass(&mut self) -> io::Result<()> {
        let Some(UnderWay { read, chain, rows }) = self.under_way.take() else { return Ok(()) };
        let ended = std::mem::replace(&mut self.chain, chain);
        self.rows += rows;
        match (self.left.front_mut(), read) {
            (Some(file), Some(read)) => file.pass(read),
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
                self.left.pop_front().map(Spill::remove).transpose()?;
            }
            (None, _) => return self.done_with_own(read),
        }
        Ok(())
    }

    fn done_with_own(&mut self, read: Option<u64>) -> io::Result<()> {
        self.unopened = None;
        let Some((own, read)) = self.own.as_mut().zip(read) else { return Ok(()) };
        own.pass(read);
        if own.is_drained() && self.rows > 0 {
            tracing::info!(
                rows = std::mem::take(&mut self.rows),
                "all audit rows that were kept back are in the log"
            );
        }
        own.shorten()
    }

    /// Takes the file away, with whose chain all is in order.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.own.take().map_or(Ok(()), Spill::remove)
    }
}
