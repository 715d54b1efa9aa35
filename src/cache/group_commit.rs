//! Group commit: rows that arrive while a batch is written are written together as the next batch.
//!
//! No row waits for others to arrive: a row that finds no batch in progress is written at once. After a batch of several
//! rows, callers that can run already run first: those of a batch are answered together, so their next rows arrive
//! together, and the first of them would be a batch of its own. The callers take turns as
//! the leader, which writes a batch and answers every caller in it after its commit. So no task can end and leave rows
//! behind: a leader that is cancelled leaves the turn to the next caller.

use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, oneshot};

use super::fair_queue::{FairQueue, Queued};
use crate::model::fault::Fault;

/// Maximum number of rows per batch.
const MAX_ROWS: usize = 64;
/// Maximum number of rows that wait for a batch.
const MAX_WAITING: usize = 4_096;
/// How long a batch delays the next one, in case its connection is stuck. Slower batches are written concurrently.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Writes rows of many callers in batches, which take the rows of the payers in turn.
///
/// At most 4,096 rows wait. At the bound, the payer with the most rows loses its newest one.
#[derive(Debug)]
pub struct GroupCommit<K: Copy + Eq + Hash, R, T> {
    waiting: Mutex<FairQueue<K, Waiting<R, T>>>,
    /// Held by the leader. How many rows the last batch had.
    turn: tokio::sync::Mutex<usize>,
    /// The longest wait for a batch.
    wait: Duration,
}

#[derive(Debug)]
struct Waiting<R, T> {
    row: R,
    caller: oneshot::Sender<Result<T, Fault>>,
}

/// A caller's row in the queue, which it leaves when the caller is cancelled.
struct InQueue<'g, K: Copy + Eq + Hash, R, T> {
    group: &'g GroupCommit<K, R, T>,
    payer: K,
    number: u64,
}

impl<K: Copy + Eq + Hash, R, T> InQueue<'_, K, R, T> {
    /// Removes the row; `None` if it is in a batch already.
    fn leave(&self) -> Option<Waiting<R, T>> {
        self.group.waiting.lock().remove(self.payer, self.number)
    }
}

impl<K: Copy + Eq + Hash, R, T> Drop for InQueue<'_, K, R, T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<K: Copy + Eq + Hash, R: Clone, T> GroupCommit<K, R, T> {
    /// A group commit whose rows wait for a batch for at most `wait`.
    pub fn new(wait: Duration) -> Self {
        Self { waiting: Mutex::new(FairQueue::new(MAX_WAITING)), turn: tokio::sync::Mutex::default(), wait }
    }

    /// Writes a row, and returns its outcome after the commit. `write` commits a batch and returns an outcome for each of
    /// its rows, in order. A batch that the database rejects is halved until the rows to blame are alone.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if too many rows wait, or the row waits for too long; [`Fault::StorageUnavailable`] if the
    /// leader was cancelled, so that it is not known whether the row is written; those of `write`.
    pub async fn write<W>(&self, payer: K, row: R, write: impl Fn(Vec<R>) -> W) -> Result<T, Fault>
    where
        W: Future<Output = Result<Vec<T>, Fault>>,
    {
        let (caller, mut answer) = oneshot::channel();
        let in_queue = self.enter(payer, Waiting { row, caller })?;
        let waiting = async {
            tokio::select! {
                biased;
                // Answered by another leader.
                answer = &mut answer => Err(answer),
                turn = self.turn.lock() => Ok(turn),
            }
        };
        match tokio::time::timeout(self.wait, waiting).await {
            Ok(Ok(turn)) => {
                if *turn > 1 {
                    tokio::task::yield_now().await;
                }
                // A row in a slow batch of another leader is not in the queue any more.
                if let Some(own) = in_queue.leave() {
                    self.lead(turn, own, write).await;
                }
            }
            Ok(Err(answer)) => return answer.unwrap_or(Err(Fault::StorageUnavailable)),
            Err(_) if in_queue.leave().is_some() => return Err(Fault::BUSY),
            Err(_) => {}
        }
        answer.await.unwrap_or(Err(Fault::StorageUnavailable))
    }

    fn enter(&self, payer: K, waiting: Waiting<R, T>) -> Result<InQueue<'_, K, R, T>, Fault> {
        let Queued { number, displaced } =
            self.waiting.lock().push(payer, waiting).map_err(|_| Fault::BUSY)?;
        if let Some(Waiting { caller, .. }) = displaced {
            // Its caller may just have been cancelled.
            let _ = caller.send(Err(Fault::BUSY));
        }
        Ok(InQueue { group: self, payer, number })
    }

    /// Writes a batch, with the leader's own row first.
    async fn lead<W>(&self, mut turn: MutexGuard<'_, usize>, own: Waiting<R, T>, write: impl Fn(Vec<R>) -> W)
    where
        W: Future<Output = Result<Vec<T>, Fault>>,
    {
        let batch: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let others = std::iter::from_fn(|| waiting.pop());
            std::iter::once(own).chain(others).take(MAX_ROWS).collect()
        };
        *turn = batch.len();
        let mut writing = pin!(write_batch(batch, write));
        let written = tokio::time::timeout(MAX_DELAY, &mut writing).await;
        drop(turn);
        if written.is_err() {
            writing.await;
        }
    }
}

async fn write_batch<R: Clone, T, W>(batch: Vec<Waiting<R, T>>, write: impl Fn(Vec<R>) -> W)
where
    W: Future<Output = Result<Vec<T>, Fault>>,
{
    let (rows, mut callers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.row, waiting.caller)).unzip();
    // The parts that are not written yet, the first one last.
    let mut parts = vec![&rows[..]];
    while let Some(part) = parts.pop() {
        let outcomes: Vec<_> = match write(part.to_vec()).await {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(Fault::Internal(_)) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            Err(fault) => part.iter().map(|_| Err(fault.clone())).collect(),
        };
        for (caller, outcome) in callers.drain(..part.len()).zip(outcomes) {
            // A caller that was cancelled does not receive it.
            let _ = caller.send(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
