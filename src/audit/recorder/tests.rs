//! The queue of events.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use time::OffsetDateTime;
use tokio::sync::oneshot::error::TryRecvError;

use super::{EventBatch, EventQueue, MAX_EVENTS, QueueFull};
use crate::model::audit::encoding;
use crate::model::audit::event::Event;

fn event(number: usize) -> Event {
    let (at, client) = (OffsetDateTime::UNIX_EPOCH, IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    Event::new(at, number.to_string().into(), client, Cow::Borrowed("ping"))
}

fn encoded(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let encode = |number| {
        let mut bytes = Vec::new();
        encoding::event(&mut bytes, &event(number));
        bytes
    };
    numbers.map(encode).collect()
}

fn taken(events: &EventBatch) -> Vec<Vec<u8>> {
    events.iter().map(|(_, event)| event.to_vec()).collect()
}

#[test]
fn events_are_taken_in_order_in_batches() {
    let queue = EventQueue::new(usize::MAX);
    (0..=MAX_EVENTS).for_each(|number| queue.push(&event(number)));
    let first = queue.take(EventBatch::default());
    assert_eq!(taken(&first), encoded(0..MAX_EVENTS));
    queue.push(&event(MAX_EVENTS + 1));
    assert_eq!(queue.len(), 2);
    let second = queue.take(first);
    assert_eq!(taken(&second), encoded(MAX_EVENTS..MAX_EVENTS + 2), "in reused memory");
    assert!(queue.is_empty());
    assert_eq!(queue.take(second).len(), 0);
}

#[test]
fn overflow_is_dropped_and_refusing_queue_fails_waiters() {
    let queue = EventQueue::new(2);
    let mut waits = queue.push_durable(&event(0)).unwrap();
    queue.suspend();
    assert_eq!(waits.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(queue.push_durable(&event(1)).unwrap_err(), QueueFull);
    queue.push(&event(2));
    assert_eq!((queue.len(), queue.shed_count()), (2, 1), "the refused event is queued all the same");
    queue.resume();
    let all = queue.take(EventBatch::default());
    assert_eq!(taken(&all), encoded(0..2));
    assert!(queue.push_durable(&event(3)).is_ok());
}

#[test]
fn events_after_one_that_cannot_be_made_durable_are_queued_too() {
    let (queue, events) = (EventQueue::new(2), [event(0), event(1), event(2)]);
    queue.suspend();
    let refused = queue.push_all_durable(events.iter()).into_iter().filter(Result::is_err).count();
    assert_eq!((refused, queue.len(), queue.shed_count()), (3, 2, 1));
}
