//! A stream that fails after a number of bytes or writes, and is read at a pace: a row is received whole before it is seen.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pace::{Pace, Pause};

/// The maximum number of writes for a statement. tokio-postgres looks up each type that it does not know, and the types in it
/// recursively: types that are nested without end would overflow the stack.
const MAX_WRITES: u32 = 512;

/// How many more bytes may be received, and how fast, and how many more writes sent.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// 0 once they were exceeded.
    left: AtomicU64,
    writes: AtomicU32,
    pace: Mutex<Option<Arc<Pace>>>,
}

impl Allowance {
    pub(super) fn set(&self, bytes: u64, pace: Option<&Arc<Pace>>) {
        self.left.store(bytes, Ordering::Relaxed);
        self.writes.store(MAX_WRITES, Ordering::Relaxed);
        *self.pace.lock() = pace.cloned();
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize, pause: &mut Pause) -> io::Result<()> {
        if let Some(pace) = &*self.pace.lock() {
            pause.charge(pace, bytes);
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let left = self.left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.left.store(left, Ordering::Relaxed);
        if left == 0 { Err(io::Error::other("too many bytes")) } else { Ok(()) }
    }

    fn take_write(&self) -> io::Result<()> {
        let writes = self.writes.load(Ordering::Relaxed);
        if writes == 0 {
            self.left.store(0, Ordering::Relaxed);
            return Err(io::Error::other("too many writes"));
        }
        self.writes.store(writes - 1, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) struct Metered<S> {
    stream: S,
    allowance: Arc<Allowance>,
    pause: Pause,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, allowance: Arc<Allowance>) -> Self {
        Self { stream, allowance, pause: Pause::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.pause.poll_over(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        Poll::Ready(this.allowance.take(buffer.filled().len() - before, &mut this.pause))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        Poll::Ready(self.allowance.take_write().map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn no_more_is_received_than_allowed() {
        let (stream, mut peer) = tokio::io::duplex(64);
        let allowance = Arc::new(Allowance::default());
        allowance.set(10, None);
        let mut metered = Metered::new(stream, Arc::clone(&allowance));
        peer.write_all(&[0; 20]).await.unwrap();
        metered.read_exact(&mut [0; 9]).await.unwrap();
        assert!(!allowance.is_used_up());
        assert!(metered.read_exact(&mut [0; 9]).await.is_err());
        assert!(allowance.is_used_up());
    }

    #[tokio::test]
    async fn no_more_is_written_than_a_statement_takes() {
        let allowance = Arc::new(Allowance::default());
        allowance.set(u64::MAX, None);
        let mut metered = Metered::new(tokio::io::sink(), Arc::clone(&allowance));
        for _ in 0..MAX_WRITES {
            metered.write_all(b"a").await.unwrap();
        }
        assert!(metered.write_all(b"a").await.is_err());
        assert!(allowance.is_used_up());
    }

    #[tokio::test]
    async fn bytes_are_received_at_the_pace() {
        let (stream, mut peer) = tokio::io::duplex(1_000);
        let allowance = Arc::new(Allowance::default());
        allowance.set(u64::MAX, Pace::new(100_000).as_ref());
        let mut metered = Metered::new(stream, allowance);
        let sender = tokio::spawn(async move { peer.write_all(&vec![0; 21_000]).await });
        let began = Instant::now();
        metered.read_exact(&mut vec![0; 21_000]).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(138), "{:?}", began.elapsed());
        sender.await.unwrap().unwrap();
    }
}
