//! A bounded queue that is fair between payers: each has a queue of its own, and the queues are served in turn.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Items that wait, each for a payer.
///
/// At most `capacity` items wait altogether. Past it the longest queue loses its newest item to a payer with a shorter one,
/// so that a payer that floods the queue displaces itself alone.
#[derive(Debug)]
pub(super) struct FairQueue<K, T> {
    /// The items of each payer, with their numbers in ascending order. No queue is empty.
    queues: HashMap<K, VecDeque<(u64, T)>>,
    /// The payers with a queue, in the order in which they are served.
    turns: VecDeque<K>,
    len: usize,
    capacity: usize,
    next_number: u64,
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
        Self { queues: HashMap::new(), turns: VecDeque::new(), len: 0, capacity, next_number: 0 }
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
        let queue = self.queues.entry(payer).or_default();
        if queue.is_empty() {
            self.turns.push_back(payer);
        }
        queue.push_back((number, item));
        self.len += 1;
        Ok(Queued { number, displaced })
    }

    /// Removes the newest item of the longest queue, if that remains at least as long as the payer's queue after the push.
    fn displace(&mut self, payer: K) -> Result<T, QueueFull> {
        let own = self.queues.get(&payer).map_or(0, VecDeque::len);
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len());
        let (longest, queue) = longest.filter(|(_, queue)| queue.len() > own + 1).ok_or(QueueFull)?;
        let (longest, newest) = (*longest, queue.back().ok_or(QueueFull)?.0);
        self.remove(longest, newest).ok_or(QueueFull)
    }

    /// Removes the item whose turn it is; its payer's next turn comes after those of all others.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, item)| item)
    }

    /// As [`pop`](Self::pop), of the payers that `may_be_served`; the others keep their turns.
    pub(super) fn pop_of(&mut self, may_be_served: impl Fn(K) -> bool) -> Option<(K, T)> {
        let turn = self.turns.iter().position(|payer| may_be_served(*payer))?;
        let payer = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(&payer)?;
        let (_, item) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&payer);
        } else {
            self.turns.push_back(payer);
        }
        self.len -= 1;
        Some((payer, item))
    }

    /// Removes a payer's item with this number, if it still waits.
    pub(super) fn remove(&mut self, payer: K, number: u64) -> Option<T> {
        let queue = self.queues.get_mut(&payer)?;
        let at = queue.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, item) = queue.remove(at)?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&payer);
            self.turns.retain(|other| *other != payer);
        }
        Some(item)
    }
}
