//! A semaphore that shares permits fairly between payers: each has a queue of its own, and the queues are served in
//! turn.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fair_queue::{FairQueue, Queued};

/// A semaphore whose permits are granted to waiting payers in turn, in the order of a `FairQueue`.
#[derive(Debug)]
pub struct FairSemaphore<K: Copy + Eq + Hash>(Mutex<State<K>>);

#[derive(Debug)]
struct State<K: Copy + Eq + Hash> {
    free: usize,
    waiting: FairQueue<K, oneshot::Sender<FairPermit<K>>>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub struct FairPermit<K: Copy + Eq + Hash>(Option<Arc<FairSemaphore<K>>>);

impl<K: Copy + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0.take() {
            semaphore.release();
        }
    }
}

/// A waiter's position in its queue, which it leaves when it is cancelled.
struct InQueue<'s, K: Copy + Eq + Hash> {
    semaphore: &'s FairSemaphore<K>,
    payer: K,
    number: u64,
}

impl<K: Copy + Eq + Hash> Drop for InQueue<'_, K> {
    fn drop(&mut self) {
        self.semaphore.0.lock().waiting.remove(self.payer, self.number);
    }
}

impl<K: Copy + Eq + Hash> FairSemaphore<K> {
    /// A semaphore of `permits`, for which at most `most_waiting` callers wait.
    pub fn new(permits: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { free: permits, waiting: FairQueue::new(most_waiting) })))
    }

    /// The number of free permits.
    pub fn free(&self) -> usize {
        self.0.lock().free
    }

    /// The number of waiters.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// A permit; `None` if none is free within `wait`, or the payer's queue is too long.
    pub async fn acquire(self: &Arc<Self>, payer: K, wait: Duration) -> Option<FairPermit<K>> {
        let (ready, receiver) = oneshot::channel();
        // A displaced sender is dropped, which wakes its waiter, after the lock is released.
        let Queued { number, displaced } = {
            let mut state = self.0.lock();
            // While a permit is free, no caller waits.
            if state.free > 0 {
                state.free -= 1;
                return Some(FairPermit(Some(Arc::clone(self))));
            }
            state.waiting.push(payer, ready).ok()?
        };
        drop(displaced);
        let _in_queue = InQueue { semaphore: self, payer, number };
        tokio::time::timeout(wait, receiver).await.ok()?.ok()
    }

    /// Hands a permit on to the next waiter.
    fn release(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let next = state.waiting.pop();
                state.free += usize::from(next.is_none());
                next
            };
            let Some(ready) = next else { return };
            match ready.send(FairPermit(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // The waiter was just cancelled: the permit is granted to the next one, and not through its own drop.
                Err(mut permit) => permit.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::task::JoinHandle;

    use super::FairSemaphore;

    const LONG: Duration = Duration::from_mins(1);

    /// Waits in a task; once it has the permit, it records its payer and releases the permit.
    async fn wait_for_turn(
        semaphore: &Arc<FairSemaphore<char>>,
        payer: char,
        served: &Arc<Mutex<String>>,
    ) -> JoinHandle<bool> {
        let (semaphore, served) = (Arc::clone(semaphore), Arc::clone(served));
        let waiting = tokio::spawn(async move {
            let permit = semaphore.acquire(payer, LONG).await;
            if permit.is_some() {
                served.lock().push(payer);
            }
            permit.is_some()
        });
        // One thread: the task runs until it waits.
        tokio::task::yield_now().await;
        waiting
    }

    #[tokio::test]
    async fn permits_go_round_between_payers() {
        let semaphore = FairSemaphore::new(1, 100);
        let held = semaphore.acquire('a', LONG).await;
        let served = Arc::new(Mutex::new(String::new()));
        let mut waiting = Vec::new();
        for payer in "aaaaabbc".chars() {
            waiting.push(wait_for_turn(&semaphore, payer, &served).await);
        }
        assert_eq!((semaphore.waiting(), semaphore.free()), (8, 0));
        drop(held);
        for waiting in waiting {
            assert!(waiting.await.unwrap());
        }
        assert_eq!(*served.lock(), "abcabaaa");
        assert_eq!((semaphore.waiting(), semaphore.free()), (0, 1));
    }

    #[tokio::test]
    async fn flooding_payer_displaces_its_own_waiters_alone() {
        let semaphore = FairSemaphore::new(1, 3);
        let held = semaphore.acquire('a', LONG).await;
        let served = Arc::new(Mutex::new(String::new()));
        let mut waiting = Vec::new();
        for payer in "aaaabb".chars() {
            waiting.push(wait_for_turn(&semaphore, payer, &served).await);
        }
        assert_eq!(semaphore.waiting(), 3);
        drop(held);
        let mut admitted = Vec::new();
        for waiting in waiting {
            admitted.push(waiting.await.unwrap());
        }
        // The fourth waiter finds the queue full; the third is displaced by the other payer, which then has no shorter
        // queue.
        assert_eq!(admitted, [true, true, false, false, true, false]);
        assert_eq!(*served.lock(), "aba");
        assert_eq!((semaphore.waiting(), semaphore.free()), (0, 1));
    }

    #[tokio::test]
    async fn cancelled_waiter_leaves_its_position_to_others() {
        let semaphore = FairSemaphore::new(1, 1);
        let held = semaphore.acquire('a', LONG).await;
        assert!(semaphore.acquire('b', Duration::ZERO).await.is_none());
        assert_eq!(semaphore.waiting(), 0);
        let served = Arc::new(Mutex::new(String::new()));
        let gone = wait_for_turn(&semaphore, 'b', &served).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let waiting = wait_for_turn(&semaphore, 'c', &served).await;
        drop(held);
        assert!(waiting.await.unwrap());
        assert_eq!((semaphore.waiting(), semaphore.free()), (0, 1));
    }
}
