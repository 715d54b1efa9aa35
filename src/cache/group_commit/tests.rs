//! Batches are observed by a write that waits until the test lets it continue.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;

use super::*;

/// A row that the database rejects.
const BAD: usize = 1_000_000;
/// A row whose batch loses its connection.
const LOST: usize = 1_000_001;
const WAIT: Duration = Duration::from_mins(1);

type Answer = Result<usize, Fault>;

struct Table {
    group: GroupCommit<char, usize, usize>,
    batches: Mutex<Vec<Vec<usize>>>,
    /// A permit for each write that may continue.
    gate: Semaphore,
}

impl Table {
    fn new(wait: Duration) -> Arc<Self> {
        let (group, batches) = (GroupCommit::new(wait), Mutex::default());
        Arc::new(Self { group, batches, gate: Semaphore::new(0) })
    }

    async fn write(&self, payer: char, row: usize) -> Answer {
        self.group.write(payer, row, |batch| self.write_batch(batch)).await
    }

    async fn write_batch(&self, batch: Vec<usize>) -> Result<Vec<usize>, Fault> {
        self.batches.lock().push(batch.clone());
        self.gate.acquire().await.unwrap().forget();
        if batch.contains(&LOST) {
            Err(Fault::StorageUnavailable)
        } else if batch.contains(&BAD) {
            Err(Fault::Internal("rejected".to_owned()))
        } else {
            Ok(batch)
        }
    }

    /// Writes each row in a task, in this order. On one thread: each task runs until it waits.
    async fn spawn(
        self: &Arc<Self>,
        payer: char,
        rows: impl IntoIterator<Item = usize>,
    ) -> Vec<JoinHandle<Answer>> {
        let mut callers = Vec::new();
        for row in rows {
            let table = Arc::clone(self);
            callers.push(tokio::spawn(async move { table.write(payer, row).await }));
            yield_now().await;
        }
        callers
    }

    fn open_gate(&self) {
        self.gate.add_permits(1_000);
    }
}

async fn answers(callers: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn lone_row_is_written_at_once() {
    let table = Table::new(WAIT);
    table.open_gate();
    assert_eq!(table.write('a', 1).now_or_never(), Some(Ok(1)));
}

#[tokio::test]
async fn rows_that_arrive_during_a_write_are_the_next_batch() {
    let table = Table::new(WAIT);
    let mut callers = table.spawn('a', 0..4).await;
    callers.extend(table.spawn('b', 4..6).await);
    callers.extend(table.spawn('c', 6..7).await);
    table.open_gate();
    assert_eq!(answers(callers).await, (0..7).map(Ok).collect::<Vec<_>>());
    // The leader's row, then the payers' in turn.
    assert_eq!(*table.batches.lock(), [vec![0], vec![1, 2, 4, 6, 3, 5]]);
}

#[tokio::test]
async fn rows_that_arrive_together_after_a_batch_are_one_batch() {
    let table = Table::new(WAIT);
    let callers = table.spawn('a', 0..4).await;
    table.open_gate();
    assert_eq!(answers(callers).await, (0..4).map(Ok).collect::<Vec<_>>());
    let callers = (4..8).map(|row| table.write('a', row));
    assert_eq!(join_all(callers).await, (4..8).map(Ok).collect::<Vec<_>>());
    assert_eq!(*table.batches.lock(), [vec![0], vec![1, 2, 3], vec![4, 5, 6, 7]]);
}

#[tokio::test]
async fn flooding_payer_takes_turns_with_others() {
    let table = Table::new(WAIT);
    let mut callers = table.spawn('a', 0..300).await;
    callers.extend(table.spawn('b', 300..302).await);
    table.open_gate();
    assert_eq!(answers(callers).await, (0..302).map(Ok).collect::<Vec<_>>());
    let batches = table.batches.lock();
    assert_eq!(batches[1][..6], [1, 2, 300, 3, 301, 4]);
    assert!(batches.iter().all(|batch| batch.len() <= MAX_ROWS), "{batches:?}");
}

#[tokio::test]
async fn rejected_row_fails_alone() {
    let table = Table::new(WAIT);
    let callers = table.spawn('a', [0, 1, 2, 3, BAD, 5, 6]).await;
    table.open_gate();
    let rejected = Err(Fault::Internal("rejected".to_owned()));
    assert_eq!(answers(callers).await, [Ok(0), Ok(1), Ok(2), Ok(3), rejected, Ok(5), Ok(6)]);
    let batch = vec![1, 2, 3, BAD, 5, 6];
    let halves = [vec![1, 2, 3], vec![BAD, 5, 6], vec![BAD], vec![5, 6]];
    assert_eq!(table.batches.lock()[1..], [&[batch][..], &halves].concat());
}

#[tokio::test]
async fn batch_without_a_database_fails_at_once() {
    let table = Table::new(WAIT);
    let callers = table.spawn('a', [0, 1, LOST, 3]).await;
    table.open_gate();
    let lost = Err(Fault::StorageUnavailable);
    assert_eq!(answers(callers).await, [Ok(0), lost.clone(), lost.clone(), lost]);
    assert_eq!(table.batches.lock().len(), 2);
}

#[tokio::test]
async fn full_queue_refuses_the_payer_with_most_rows() {
    let table = Table::new(WAIT);
    let mut callers = table.spawn('a', 0..=MAX_WAITING).await;
    assert_eq!(table.write('a', MAX_WAITING + 1).await, Err(Fault::BUSY));
    callers.extend(table.spawn('b', [MAX_WAITING + 2]).await);
    table.open_gate();
    let mut expected: Vec<_> = (0..=MAX_WAITING).map(Ok).collect();
    expected[MAX_WAITING] = Err(Fault::BUSY);
    expected.push(Ok(MAX_WAITING + 2));
    assert_eq!(answers(callers).await, expected);
}

#[tokio::test]
async fn slow_batch_delays_the_next_for_a_second_only() {
    let table = Table::new(WAIT);
    let began = Instant::now();
    let slow = table.spawn('a', 0..1).await;
    let next = table.spawn('a', 1..2).await;
    while table.batches.lock().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(began.elapsed() >= MAX_DELAY, "{:?}", began.elapsed());
    table.open_gate();
    assert_eq!(answers([slow, next].into_iter().flatten().collect()).await, [Ok(0), Ok(1)]);
}

#[tokio::test]
async fn row_that_waits_for_too_long_is_refused() {
    let wait = MAX_DELAY / 2;
    let table = Table::new(wait);
    let slow = table.spawn('a', 0..1).await;
    assert_eq!(table.write('a', 1).await, Err(Fault::BUSY));
    table.open_gate();
    assert_eq!(answers(slow).await, [Ok(0)], "what is being written is not refused");
    assert_eq!(*table.batches.lock(), [[0]], "what was refused is not written");
}

#[tokio::test]
async fn cancelled_leader_leaves_the_turn_to_the_next_caller() {
    let table = Table::new(WAIT);
    let mut callers = table.spawn('a', 0..3).await;
    callers[0].abort();
    assert!(callers.remove(0).await.unwrap_err().is_cancelled());
    yield_now().await;
    assert_eq!(*table.batches.lock(), [vec![0], vec![1, 2]]);
    callers[0].abort();
    assert!(callers.remove(0).await.unwrap_err().is_cancelled());
    assert_eq!(answers(callers).await, [Err(Fault::StorageUnavailable)], "in doubt");
    table.open_gate();
    assert_eq!(table.write('a', 3).await, Ok(3));
}

#[tokio::test]
async fn row_of_a_cancelled_caller_is_not_written() {
    let table = Table::new(WAIT);
    let mut callers = table.spawn('a', 0..3).await;
    callers[1].abort();
    assert!(callers.remove(1).await.unwrap_err().is_cancelled());
    table.open_gate();
    assert_eq!(answers(callers).await, [Ok(0), Ok(2)]);
    assert_eq!(*table.batches.lock(), [[0], [2]]);
}
