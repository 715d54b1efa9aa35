//! Open event streams, each watched by a task that does next to nothing: it notes when it was told of a change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::door::Door;
use crate::error::Error;

/// How many streams are being opened at once.
const OPENERS: usize = 16;
/// How long a change may take to be told on all streams.
const TELL: Duration = Duration::from_secs(30);
/// What an event that tells of a change holds, and nothing else on a stream does.
const MARK: &[u8] = b"/updated\"";

/// Streams of one server.
pub(crate) struct Crowd {
    server: &'static str,
    watchers: JoinSet<Result<(), Error>>,
    board: Arc<Board>,
    size: usize,
}

/// Where the watchers note what they were told.
#[derive(Default)]
struct Board {
    told: Mutex<Vec<Instant>>,
    some: Notify,
}

impl Crowd {
    /// Opens streams, and begins to watch them.
    pub(crate) async fn open(door: &Door, size: usize) -> Result<Self, Error> {
        let mut crowd = Self { server: door.server, watchers: JoinSet::new(), board: Arc::default(), size };
        let mut opening = JoinSet::new();
        let mut left = size;
        loop {
            while left > 0 && opening.len() < OPENERS {
                let door = door.clone();
                opening.spawn(async move { door.open().await });
                left -= 1;
            }
            let Some(opened) = opening.join_next().await else { return Ok(crowd) };
            let stream = opened??;
            crowd.watchers.spawn(watch(stream, Arc::clone(&crowd.board)));
        }
    }

    /// Waits until a change was told on every stream; answers when on each, in order. The next change is counted anew.
    pub(crate) async fn all_told(&mut self) -> Result<Vec<Instant>, Error> {
        let (board, size) = (Arc::clone(&self.board), self.size);
        let told = async {
            loop {
                if let Some(told) = board.take(size) {
                    return told;
                }
                board.some.notified().await;
            }
        };
        let server = self.server;
        tokio::select! {
            told = timeout(TELL, told) => {
                told.map_err(|_| Error::TimedOut { server, seconds: TELL.as_secs() })
            }
            Some(ended) = self.watchers.join_next() => {
                ended??;
                Err(Error::StreamEnded { server })
            }
        }
    }
}

impl Board {
    fn note(&self, when: Instant) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(when);
        self.some.notify_one();
    }

    /// What was noted, once it is as much as expected.
    fn take(&self, size: usize) -> Option<Vec<Instant>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        (told.len() >= size).then(|| std::mem::replace(&mut *told, Vec::with_capacity(size)))
    }
}

/// Reads a stream until it ends.
async fn watch(stream: TcpStream, board: Arc<Board>) -> Result<(), Error> {
    let mut mark = Mark::default();
    loop {
        stream.readable().await.map_err(Error::io("wait for an event"))?;
        let mut buffer = [0; 2048];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let when = Instant::now();
                (0..mark.found(&buffer[..length])).for_each(|_| board.note(when));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::io("read an event")(error)),
        }
    }
}

/// Finds [`MARK`] in bytes that come in pieces.
#[derive(Default)]
struct Mark {
    /// How much of it was found last. Its first byte does not occur in it again.
    matched: usize,
}

impl Mark {
    /// How often it ends in these bytes.
    fn found(&mut self, bytes: &[u8]) -> usize {
        let mut found = 0;
        for byte in bytes {
            self.matched =
                if *byte == MARK[self.matched] { self.matched + 1 } else { usize::from(*byte == MARK[0]) };
            if self.matched == MARK.len() {
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
    fn a_mark_is_found_wherever_it_is_cut() {
        let event = br#"data: {"method":"notifications/resources/updated","params":{"uri":"a://b/updated"}}"#;
        for cut in 0..event.len() {
            let mut mark = Mark::default();
            let (front, back) = event.split_at(cut);
            assert_eq!(mark.found(front) + mark.found(back), 2, "{cut}");
        }
        assert_eq!(Mark::default().found(b":\n\n//updated\"/updated /upd"), 1);
    }

    #[test]
    fn what_was_told_is_handed_out_once_it_is_complete() {
        let board = Board::default();
        let now = Instant::now();
        board.note(now);
        assert_eq!(board.take(2), None);
        board.note(now);
        assert_eq!(board.take(2), Some(vec![now, now]));
        assert_eq!(board.take(1), None);
    }
}
