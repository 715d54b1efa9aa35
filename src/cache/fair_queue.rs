//! A bounded queue that is fair between payers: each has a queue of its own, and the queues are served in turn.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// The turns without an item that are kept before they are deleted, beside one for each item: deleting them when the last
/// item is removed would take a pass over all turns for each waiter that leaves.
const MAX_IDLE_TURNS: usize = 64;

/// Items that wait, each for a payer.
///
/// At most `capacity` items wait altogether. Past it the longest queue loses its newest item to a payer with a shorter one,
/// so that a payer that floods the queue displaces itself alone. No operation passes over all payers.
#[derive(Debug)]
pub(super) struct FairQueue<K, T> {
    /// The queue of each payer with a turn.
    queues: HashMap<K, PayerQueue<T>>,
    /// Each payer of `queues` once, in the order in which they are served.
    turns: VecDeque<K>,
    /// The payers with items, by their number.
    by_len: BTreeMap<usize, Vec<K>>,
    len: usize,
    capacity: usize,
    next_number: u64,
}

/// The items of a payer; none if all were removed before its turn.
#[derive(Debug)]
struct PayerQueue<T> {
    /// The items with their numbers in ascending order.
    items: VecDeque<(u64, T)>,
    /// The index of the payer among those with as many items.
    index: usize,
}

/// The queue is full, and the payer's own queue is among the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueFull;

/// An item that was queued.
#[derive(Debug)]
pub(super) struct Queued<T> {
    /// Its number, unique in the queue.
    pub(super) number: u64,
    /// The item that was evicted to make room.
    pub(super) displaced: Option<T>,
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// An empty queue of at most `capacity` items.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            queues: HashMap::new(),
            turns: VecDeque::new(),
            by_len: BTreeMap::new(),
            len: 0,
            capacity,
            next_number: 0,
        }
    }

    /// How many items wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item to the queue of a payer.
    pub(super) fn push(&mut self, payer: K, item: T) -> Result<Queued<T>, QueueFull> {
        let displaced = if self.len >= self.capacity { Some(self.displace(payer)?) } else { None };
        let number = self.next_number;
        self.next_number += 1;
        let queue = self.queues.entry(payer).or_insert_with(|| {
            self.turns.push_back(payer);
            PayerQueue { items: VecDeque::new(), index: 0 }
        });
        queue.items.push_back((number, item));
        let count = queue.items.len();
        self.record(payer, count - 1, count);
        Ok(Queued { number, displaced })
    }

    /// Removes the newest item of the longest queue, if that remains at least as long as the payer's queue after the push.
    fn displace(&mut self, payer: K) -> Result<T, QueueFull> {
        let own = self.queues.get(&payer).map_or(0, |queue| queue.items.len());
        let (count, payers) = self.by_len.last_key_value().ok_or(QueueFull)?;
        let longest = *payers.last().filter(|_| *count > own + 1).ok_or(QueueFull)?;
        let newest = self.queues.get(&longest).and_then(|queue| queue.items.back()).ok_or(QueueFull)?.0;
        self.remove(longest, newest).ok_or(QueueFull)
    }

    /// Removes the item whose turn it is; its payer's next turn comes after those of all others.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, item)| item)
    }

    /// As [`pop`](Self::pop), of the payers that `may_be_served`; the others keep their turns.
    pub(super) fn pop_of(&mut self, may_be_served: impl Fn(K) -> bool) -> Option<(K, T)> {
        let mut turn = 0;
        loop {
            let payer = *self.turns.get(turn)?;
            if self.queues.get(&payer).is_none_or(|queue| queue.items.is_empty()) {
                self.turns.remove(turn);
                self.queues.remove(&payer);
            } else if may_be_served(payer) {
                break;
            } else {
                turn += 1;
            }
        }
        let payer = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(&payer)?;
        let (_, item) = queue.items.pop_front()?;
        let count = queue.items.len();
        self.record(payer, count + 1, count);
        if count == 0 {
            self.queues.remove(&payer);
        } else {
            self.turns.push_back(payer);
        }
        Some((payer, item))
    }

    /// Removes a payer's item with this number, if it still waits.
    pub(super) fn remove(&mut self, payer: K, number: u64) -> Option<T> {
        let items = &mut self.queues.get_mut(&payer)?.items;
        let at = items.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, item) = items.remove(at)?;
        let count = items.len();
        self.record(payer, count + 1, count);
        if self.turns.len() > 2 * self.len + MAX_IDLE_TURNS {
            self.queues.retain(|_, queue| !queue.items.is_empty());
            self.turns.retain(|payer| self.queues.contains_key(payer));
        }
        Some(item)
    }

    /// Records that the number of a payer's items has changed by one.
    fn record(&mut self, payer: K, before: usize, after: usize) {
        self.len = self.len + after - before;
        if let Some(queue) = self.queues.get(&payer)
            && let Some(payers) = self.by_len.get_mut(&before)
        {
            let index = queue.index;
            payers.swap_remove(index);
            if let Some(moved) = payers.get(index).and_then(|moved| self.queues.get_mut(moved)) {
                moved.index = index;
            } else if payers.is_empty() {
                self.by_len.remove(&before);
            }
        }
        if after > 0
            && let Some(queue) = self.queues.get_mut(&payer)
        {
            let payers = self.by_len.entry(after).or_default();
            queue.index = payers.len();
            payers.push(payer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FairQueue, MAX_IDLE_TURNS};

    /// Fails if the payers are not recorded by the number of their items, or if one has two turns.
    fn check(queue: &FairQueue<u64, u64>) {
        let recorded = queue.by_len.iter().flat_map(|(count, payers)| {
            payers.iter().enumerate().map(|(index, payer)| (*payer, *count, index))
        });
        let mut recorded: Vec<_> = recorded.collect();
        let with_items = queue.queues.iter().filter(|(_, queue)| !queue.items.is_empty());
        let mut expected: Vec<_> =
            with_items.map(|(payer, queue)| (*payer, queue.items.len(), queue.index)).collect();
        recorded.sort_unstable();
        expected.sort_unstable();
        assert_eq!(recorded, expected);
        assert_eq!(queue.len, expected.iter().map(|(_, count, _)| count).sum::<usize>());
        let mut turns: Vec<_> = queue.turns.iter().copied().collect();
        turns.sort_unstable();
        let mut payers: Vec<_> = queue.queues.keys().copied().collect();
        payers.sort_unstable();
        assert_eq!(turns, payers);
    }

    #[test]
    fn longest_queue_is_known_after_any_operations() {
        let mut queue = FairQueue::new(40);
        let mut waiting = Vec::new();
        let mut seed = 1_u64;
        for _ in 0..4_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (action, number) = (seed >> 33, seed >> 40);
            match action % 8 {
                0 => {
                    queue.pop();
                }
                1 | 2 if !waiting.is_empty() => {
                    let at = usize::try_from(number).unwrap() % waiting.len();
                    let (payer, number) = waiting.swap_remove(at);
                    queue.remove(payer, number);
                }
                _ => {
                    // Some payers have most of the items.
                    let payer = (number % 16).saturating_sub(number % 5);
                    if let Ok(queued) = queue.push(payer, number) {
                        waiting.push((payer, queued.number));
                    }
                }
            }
            check(&queue);
        }
    }

    #[test]
    fn waiters_that_leave_cost_no_pass_over_all_turns() {
        let mut queue = FairQueue::new(10_000);
        let waiting: Vec<_> =
            (0..10_000).map(|payer| (payer, queue.push(payer, payer).unwrap().number)).collect();
        for (payer, number) in &waiting[..5_000] {
            assert_eq!(queue.remove(*payer, *number), Some(*payer));
        }
        assert_eq!((queue.len(), queue.turns.len()), (5_000, 10_000), "kept until their turn");
        // A payer that comes back has one turn, and those without items are passed over.
        queue.push(0, 7).unwrap();
        assert_eq!((queue.pop(), queue.pop()), (Some(7), Some(5_000)));
        for (payer, number) in &waiting {
            queue.remove(*payer, *number);
        }
        assert!(queue.turns.len() <= MAX_IDLE_TURNS, "{} turns of no item", queue.turns.len());
        check(&queue);
        assert_eq!(queue.pop(), None);
    }
}
