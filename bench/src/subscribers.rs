//! Open event streams. Each is read by a task that records when an event about a change arrives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::Error;
use crate::stream_client::StreamClient;

/// How many streams are opened concurrently.
const OPENERS: usize = 16;
/// The maximum time until a change has arrived on all streams.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that an event about a change contains, and no other event.
const UPDATED: &[u8] = b"/updated\"";

/// The streams of one server.
pub(crate) struct Subscribers {
    server: &'static str,
    watchers: JoinSet<Result<(), Error>>,
    arrivals: Arc<Arrivals>,
    size: usize,
}

/// When the streams received the current change.
#[derive(Default)]
struct Arrivals {
    received: Mutex<Vec<Instant>>,
    some: Notify,
}

impl Subscribers {
    /// Opens the streams and starts reading them.
    pub(crate) async fn open(client: &StreamClient, size: usize) -> Result<Self, Error> {
        let mut subscribers =
            Self { server: client.server, watchers: JoinSet::new(), arrivals: Arc::default(), size };
        let mut opening = JoinSet::new();
        let mut left = size;
        loop {
            while left > 0 && opening.len() < OPENERS {
                let client = client.clone();
                opening.spawn(async move { client.open().await });
                left -= 1;
            }
            let Some(opened) = opening.join_next().await else { return Ok(subscribers) };
            let stream = opened??;
            subscribers.watchers.spawn(watch(stream, Arc::clone(&subscribers.arrivals)));
        }
    }

    /// Waits until every stream has received a change; returns when each did, in order. Then counting starts over.
    pub(crate) async fn all_received(&mut self) -> Result<Vec<Instant>, Error> {
        let (arrivals, size) = (Arc::clone(&self.arrivals), self.size);
        let received = async {
            loop {
                if let Some(received) = arrivals.take(size) {
                    return received;
                }
                arrivals.some.notified().await;
            }
        };
        let server = self.server;
        tokio::select! {
            received = timeout(DELIVERY_TIMEOUT, received) => {
                received.map_err(|_| Error::TimedOut { server, seconds: DELIVERY_TIMEOUT.as_secs() })
            }
            Some(ended) = self.watchers.join_next() => {
                ended??;
                Err(Error::StreamEnded { server })
            }
        }
    }
}

impl Arrivals {
    fn note(&self, when: Instant) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push(when);
        self.some.notify_one();
    }

    /// Removes and returns the recorded times once there are `size` of them.
    fn take(&self, size: usize) -> Option<Vec<Instant>> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        (received.len() >= size).then(|| std::mem::replace(&mut *received, Vec::with_capacity(size)))
    }
}

/// Reads a stream until it ends.
async fn watch(stream: TcpStream, arrivals: Arc<Arrivals>) -> Result<(), Error> {
    let mut counter = EventCounter::default();
    loop {
        stream.readable().await.map_err(Error::io("wait for an event"))?;
        let mut buffer = [0; 2048];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let when = Instant::now();
                (0..counter.found(&buffer[..length])).for_each(|_| arrivals.note(when));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::io("read an event")(error)),
        }
    }
}

/// Counts the occurrences of [`UPDATED`] in a byte stream.
#[derive(Default)]
struct EventCounter {
    /// How many of its bytes the input so far ends with. Its first byte does not occur again in it.
    matched: usize,
}

impl EventCounter {
    /// The number of occurrences that end in these bytes.
    fn found(&mut self, bytes: &[u8]) -> usize {
        let mut found = 0;
        for byte in bytes {
            self.matched = if *byte == UPDATED[self.matched] {
                self.matched + 1
            } else {
                usize::from(*byte == UPDATED[0])
            };
            if self.matched == UPDATED.len() {
                (self.matched, found) = (0, found + 1);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_across_split_input() {
        let event = br#"data: {"method":"notifications/resources/updated","params":{"uri":"a://b/updated"}}"#;
        for cut in 0..event.len() {
            let mut counter = EventCounter::default();
            let (front, back) = event.split_at(cut);
            assert_eq!(counter.found(front) + counter.found(back), 2, "{cut}");
        }
        assert_eq!(EventCounter::default().found(b":\n\n//updated\"/updated /upd"), 1);
    }

    #[test]
    fn times_are_returned_once_every_stream_has_received_the_change() {
        let arrivals = Arrivals::default();
        let now = Instant::now();
        arrivals.note(now);
        assert_eq!(arrivals.take(2), None);
        arrivals.note(now);
        assert_eq!(arrivals.take(2), Some(vec![now, now]));
        assert_eq!(arrivals.take(1), None);
    }
}
