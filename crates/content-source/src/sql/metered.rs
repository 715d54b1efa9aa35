//! A stream that fails after a number of bytes: a row is received whole before it is seen.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many more bytes may be received. 0 once they were exceeded.
#[derive(Debug, Default)]
pub(super) struct Allowance(AtomicU64);

impl Allowance {
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes);
        self.set(left);
        if left == 0 { Err(io::Error::other("too many bytes")) } else { Ok(()) }
    }
}

pub(super) struct Metered<S> {
    pub(super) stream: S,
    pub(super) allowance: Arc<Allowance>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.allowance.take(buffer.filled().len() - before)),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn no_more_is_received_than_allowed() {
        let (stream, mut peer) = tokio::io::duplex(64);
        let allowance = Arc::new(Allowance::default());
        allowance.set(10);
        let mut metered = Metered { stream, allowance: Arc::clone(&allowance) };
        peer.write_all(&[0; 20]).await.unwrap();
        metered.read_exact(&mut [0; 9]).await.unwrap();
        assert!(!allowance.is_used_up());
        assert!(metered.read_exact(&mut [0; 9]).await.is_err());
        assert!(allowance.is_used_up());
    }
}
