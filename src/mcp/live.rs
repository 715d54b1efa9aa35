//! An open stream, in either era: tells what changed, keeps the connection alive, and ends when it must.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio_util::sync::CancellationToken;

use super::sse::KEEP_ALIVE;
use super::streams::StreamPlace;
use super::trail::Farewell;
use crate::feed::hub::{Reading, Told};
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;
use crate::registry::Registry;
use crate::registry::access::Caller;

/// Most bytes that are handed to a connection at once; the rest stays a set.
const CHUNK: usize = 4 * 1024;
/// After which a stream looks again, when it could not be found out whether it may go on.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The gateway is shutting down.
    Shutdown,
    /// The agent was disabled or deleted, or the credential revoked, or it expired.
    NotAllowed,
    /// The session ended.
    Session,
    /// A newer stream of the session took its place.
    Superseded,
}

/// What an era says on a stream.
pub(super) trait Voice: Send + 'static {
    /// Appends what tells of a change.
    fn tell(&mut self, out: &mut Vec<u8>, told: &Told);

    /// Appends the last words.
    fn last(&mut self, out: &mut Vec<u8>, end: End);

    /// Looks again at what the stream depends on besides its caller, and appends what there is to say of it.
    fn look_again(
        &mut self,
        reading: &Reading,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<(), Obstacle>> + Send;

    /// The connection was found alive.
    fn alive(&mut self);
}

/// Why a stream does not simply go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It must end.
    End(End),
    /// It cannot be found out now whether it may go on.
    Unknown,
}

/// What a stream runs on.
pub(super) struct Ground {
    pub(super) registry: Arc<Registry>,
    pub(super) feed: Arc<dyn ChangeFeed>,
    pub(super) caller: Caller,
    pub(super) keep_alive: Duration,
    pub(super) closing: CancellationToken,
    pub(super) place: StreamPlace,
}

struct Live<V> {
    ground: Ground,
    reading: Reading,
    voice: V,
    first: Vec<u8>,
    ended: bool,
    farewell: Farewell,
}

/// The bytes of a stream, `first` before everything else.
pub(super) fn events<V: Voice>(
    ground: Ground,
    reading: Reading,
    voice: V,
    first: Vec<u8>,
    farewell: Farewell,
) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
    // What changed between admission and here is found when it first looks.
    reading.suspect();
    // Boxed once, since both the state and the future of `unfold` have room for what they hand each other.
    let live = Box::new(Live { ground, reading, voice, first, ended: false, farewell });
    Box::pin(unfold(live, |mut live| async move {
        let bytes = live.next().await?;
        live.farewell.sent(bytes.len());
        Some((bytes, live))
    }))
}

impl<V: Voice> Live<V> {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.first.is_empty() {
            return Some(std::mem::take(&mut self.first).into());
        }
        while !self.ended {
            let wait = self.wait();
            let closing = self.ground.closing.clone();
            tokio::select! {
                biased;
                () = closing.cancelled() => return Some(self.end(End::Shutdown, Vec::new())),
                () = self.reading.stirred() => {}
                () = tokio::time::sleep(wait) => {
                    self.reading.suspect();
                    if wait == self.ground.keep_alive {
                        self.voice.alive();
                        return Some(KEEP_ALIVE);
                    }
                }
            }
            let told = self.tell().await;
            if !told.is_empty() {
                return Some(told);
            }
        }
        None
    }

    /// Until the connection needs a sign of life, or the credential expires.
    fn wait(&self) -> Duration {
        let expires = self.ground.registry.expires_in(&self.ground.caller);
        expires.map_or(self.ground.keep_alive, |expires| expires.min(self.ground.keep_alive))
    }

    /// What there is to tell, as much as is sent at once; nothing where it may not be told now.
    async fn tell(&mut self) -> Bytes {
        let mut out = Vec::new();
        match self.may_go_on(&mut out).await {
            Ok(()) => {}
            Err(Obstacle::End(end)) => return self.end(end, out),
            Err(Obstacle::Unknown) => {
                self.reading.suspect();
                tokio::time::sleep(LOOK_AGAIN).await;
                return out.into();
            }
        }
        while out.len() < CHUNK
            && let Some(told) = self.reading.next()
        {
            self.voice.tell(&mut out, &told);
            self.ground.place.told();
        }
        out.into()
    }

    async fn may_go_on(&mut self, out: &mut Vec<u8>) -> Result<(), Obstacle> {
        // Whoever may have missed that this stream is over asks first.
        let proven = self.ground.feed.unproven_for().is_zero() || self.ground.feed.confirm().await.is_ok();
        if !proven {
            return Err(Obstacle::Unknown);
        }
        if !self.reading.take_suspicion() {
            return Ok(());
        }
        // On the heap while it lasts: a stream that waits, as nearly all do nearly always, has no room for it.
        Box::pin(self.look_again(out)).await
    }

    /// Whether the caller may still be told, and what else the era has to look at.
    async fn look_again(&mut self, out: &mut Vec<u8>) -> Result<(), Obstacle> {
        match self.ground.registry.readmit(&self.ground.caller).await {
            Ok(()) => self.voice.look_again(&self.reading, out).await,
            Err(Fault::StorageUnavailable | Fault::Unavailable { .. } | Fault::Internal(_)) => {
                Err(Obstacle::Unknown)
            }
            Err(_) => Err(Obstacle::End(End::NotAllowed)),
        }
    }

    fn end(&mut self, end: End, mut out: Vec<u8>) -> Bytes {
        self.ended = true;
        self.farewell.because(end);
        self.voice.last(&mut out, end);
        out.into()
    }
}
