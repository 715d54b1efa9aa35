//! A semaphore that shares permits fairly between payers: each has a queue of its own, and the queues are served in
//! turn.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// The maximum number of permits of a payer.
    most_each: usize,
    /// How many permits each payer holds.
    held: HashMap<K, usize>,
    waiting: FairQueue<K, oneshot::Sender<FairPermit<K>>>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub struct FairPermit<K: Copy + Eq + Hash>(Option<(Arc<FairSemaphore<K>>, K)>);

impl<K: Copy + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        if let Some((semaphore, payer)) = self.0.take() {
            semaphore.release(payer);
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

impl<K: Copy + Eq + Hash> State<K> {
    /// Counts one more permit of a payer, unless it holds as many as it may.
    fn try_hold(&mut self, payer: K) -> bool {
        let held = self.held.entry(payer).or_default();
        let is_admitted = *held < self.most_each;
        *held += usize::from(is_admitted);
        is_admitted
    }

    /// Takes a permit of a payer, and counts it for the next waiter, if there is one that may hold more.
    fn hand_on(&mut self, from: K) -> Option<(K, oneshot::Sender<FairPermit<K>>)> {
        if let Entry::Occupied(mut held) = self.held.entry(from) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        let Self { held, most_each, .. } = self;
        let may_hold = |payer| held.get(&payer).is_none_or(|held| held < most_each);
        let next = self.waiting.pop_of(may_hold);
        match next {
            Some((payer, _)) => *self.held.entry(payer).or_default() += 1,
            None => self.free += 1,
        }
        next
    }
}

impl<K: Copy + Eq + Hash> FairSemaphore<K> {
    /// A semaphore of `permits`, for which at most `most_waiting` callers wait.
    pub fn new(permits: usize, most_waiting: usize) -> Arc<Self> {
        Self::with_share(permits, permits, most_waiting)
    }

    /// As [`new`](Self::new), where a payer holds at most `most_each` permits: those that are left are free for others, however
    /// long it holds its own.
    pub fn with_share(permits: usize, most_each: usize, most_waiting: usize) -> Arc<Self> {
        let waiting = FairQueue::new(most_waiting);
        Arc::new(Self(Mutex::new(State { free: permits, most_each, held: HashMap::new(), waiting })))
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
            // While a permit is free, only payers wait that hold as many as they may.
            if state.free > 0 && state.try_hold(payer) {
                state.free -= 1;
                return Some(FairPermit(Some((Arc::clone(self), payer))));
            }
            state.waiting.push(payer, ready).ok()?
        };
        drop(displaced);
        let _in_queue = InQueue { semaphore: self, payer, number };
        tokio::time::timeout(wait, receiver).await.ok()?.ok()
    }

    /// Hands a permit of a payer on to the next waiter.
    fn release(self: &Arc<Self>, mut payer: K) {
        loop {
            let next = self.0.lock().hand_on(payer);
            let Some((next, ready)) = next else { return };
            match ready.send(FairPermit(Some((Arc::clone(self), next)))) {
                Ok(()) => return,
                // The waiter was just cancelled: the permit is granted to the next one, and not through its own drop.
                Err(mut permit) => permit.0 = None,
            }
            payer = next;
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
    async fn payer_with_its_share_leaves_permits_to_others() {
        let semaphore = FairSemaphore::with_share(4, 2, 100);
        let first = semaphore.acquire('a', LONG).await;
        let _second = semaphore.acquire('a', LONG).await;
        let served = Arc::new(Mutex::new(String::new()));
        let third = wait_for_turn(&semaphore, 'a', &served).await;
        assert_eq!((semaphore.waiting(), semaphore.free()), (1, 2));
        // Another payer does not wait behind it, and what that releases does not become the first one's.
        drop(semaphore.acquire('b', Duration::ZERO).await.unwrap());
        assert_eq!((semaphore.waiting(), semaphore.free()), (1, 2));
        drop(first);
        assert!(third.await.unwrap());
        assert_eq!((semaphore.waiting(), semaphore.free()), (0, 3));
        assert!(semaphore.acquire('a', Duration::ZERO).await.is_some());
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
