//! An open stream, in either era: tells what changed, keeps the connection alive, and ends when it must.
//!
//! A stream is polled by its connection. Its deadlines (the next comment and check, the end of its credential) are points
//! in time that no event moves. A connection whose peer takes nothing does not poll, so a supervisor checks such a stream
//! as often: it ends in time, with its place and its audit row, and its last words wait for the peer.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

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
/// Wait after a check that could not be made; doubled each time, up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(2);

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
pub(super) trait Voice: Send + Sync + 'static {
    /// Appends what tells of a change.
    fn tell(&mut self, out: &mut Vec<u8>, told: &Told);

    /// Appends the last words.
    fn last(&mut self, out: &mut Vec<u8>, end: End);

    /// Looks again at what the stream depends on besides its caller, and appends what there is to say of it. The
    /// caller's credential expires at `expires_at`, as of its newest grant.
    fn look_again(
        &mut self,
        reading: &Reading,
        expires_at: Option<OffsetDateTime>,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<(), Obstacle>> + Send;
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

/// A stream, shared by the connection that polls it and its supervisor.
struct Live<V> {
    /// `None` once the stream has ended.
    open: Option<Open<V>>,
    /// Sent before anything else: the first event, or what the supervisor left.
    pending: Vec<u8>,
}

struct Open<V> {
    ground: Ground,
    reading: Reading,
    voice: V,
    farewell: Farewell,
    /// When the stream next carries a comment and is checked, whatever happens on it meanwhile.
    next_check: Instant,
    /// When a check that could not be made is made again, and the wait after it.
    retry: Option<(Instant, Duration)>,
}

/// The bytes of a stream, `first` before everything else.
pub(super) fn events<V: Voice>(
    ground: Ground,
    reading: Reading,
    voice: V,
    first: Vec<u8>,
    mut farewell: Farewell,
) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
    // What changed between admission and here is found when it first looks.
    reading.suspect();
    farewell.sent(first.len());
    let every = ground.keep_alive;
    let next_check = Instant::now() + every;
    let open = Open { ground, reading, voice, farewell, next_check, retry: None };
    // On the heap once, since both the state and the future of `unfold` have room for what they hand each other.
    let live = Arc::new(Mutex::new(Live { open: Some(open), pending: first }));
    let supervisor = AbortOnDropHandle::new(tokio::spawn(supervise(Arc::downgrade(&live), every)));
    Box::pin(unfold((live, supervisor), |(live, supervisor)| async move {
        let bytes = live.lock().await.next().await?;
        Some((bytes, (live, supervisor)))
    }))
}

/// Checks a stream that its connection does not poll, since its peer takes nothing. One that is polled checks itself.
async fn supervise<V: Voice>(live: Weak<Mutex<Live<V>>>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(live) = live.upgrade() else { return };
        let Ok(mut live) = live.try_lock() else { continue };
        match &live.open {
            Some(open) => open.reading.suspect(),
            None => return,
        }
        live.step(false).await;
    }
}

impl<V: Voice> Live<V> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.pending.is_empty() {
                return Some(std::mem::take(&mut self.pending).into());
            }
            self.open.as_ref()?.wait().await;
            self.step(true).await;
        }
    }

    /// Does what is due: ends the stream, or makes ready what is to be sent. Nothing is told to a peer that takes nothing.
    async fn step(&mut self, polled: bool) {
        let Some(open) = &mut self.open else { return };
        let mut out = std::mem::take(&mut self.pending);
        let before = out.len();
        let ended = match open.check(&mut out, polled).await {
            Ok(may_tell) => {
                if may_tell && polled {
                    open.tell(&mut out);
                }
                false
            }
            Err(end) => {
                open.farewell.because(end);
                open.voice.last(&mut out, end);
                true
            }
        };
        open.farewell.sent(out.len() - before);
        self.pending = out;
        if ended {
            // Its place, its interests and its audit row end now, whenever the last words are read.
            self.open = None;
        }
    }
}

impl<V: Voice> Open<V> {
    /// Waits until there is something to tell or to check. What is due goes first: a busy stream never waits.
    async fn wait(&self) {
        tokio::select! {
            biased;
            () = self.ground.closing.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline()) => {}
            () = self.reading.stirred(), if self.retry.is_none() => {}
        }
    }

    /// When the stream must be looked at, whatever happens on it.
    fn deadline(&self) -> Instant {
        let expires = self.expires_in().map(|left| Instant::now() + left.min(self.ground.keep_alive));
        let retry = self.retry.map(|(at, _)| at);
        [expires, retry].into_iter().flatten().fold(self.next_check, Instant::min)
    }

    /// For how long the newest known grant of the caller holds.
    fn expires_in(&self) -> Option<Duration> {
        self.ground.registry.expires_in(&self.ground.caller)
    }

    fn has_expired(&self) -> bool {
        self.expires_in().is_some_and(|left| left.is_zero())
    }

    /// Whether something may be told now; appends the comment that is due on a connection that takes bytes.
    async fn check(&mut self, out: &mut Vec<u8>, polled: bool) -> Result<bool, End> {
        if self.ground.closing.is_cancelled() {
            return Err(End::Shutdown);
        }
        let now = Instant::now();
        if polled && now >= self.next_check {
            self.next_check = now + self.ground.keep_alive;
            self.reading.suspect();
            out.extend_from_slice(&KEEP_ALIVE);
        }
        let expired = self.has_expired();
        if expired {
            self.reading.suspect();
        } else if self.retry.is_some_and(|(at, _)| now < at) {
            return Ok(false);
        }
        match self.may_go_on(out).await {
            Err(Obstacle::End(end)) => Err(end),
            // A newer grant was looked for.
            _ if self.has_expired() => Err(End::NotAllowed),
            Err(Obstacle::Unknown) => {
                self.reading.suspect();
                let (_, wait) = self.retry.unwrap_or((now, FIRST_RETRY));
                self.retry = Some((Instant::now() + wait, (wait * 2).min(LAST_RETRY)));
                Ok(false)
            }
            Ok(()) => {
                self.retry = None;
                Ok(true)
            }
        }
    }

    /// Appends what there is to tell, as much as is sent at once.
    fn tell(&mut self, out: &mut Vec<u8>) {
        while out.len() < CHUNK
            && let Some(told) = self.reading.next()
        {
            self.voice.tell(out, &told);
            self.ground.place.told();
        }
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

    /// Whether the caller may still be told, by its newest grant, and what else the era has to look at.
    async fn look_again(&mut self, out: &mut Vec<u8>) -> Result<(), Obstacle> {
        let Ground { registry, caller, .. } = &mut self.ground;
        match registry.readmit(caller).await {
            Ok(grant) => caller.grant = grant,
            Err(Fault::StorageUnavailable | Fault::Unavailable { .. } | Fault::Internal(_)) => {
                return Err(Obstacle::Unknown);
            }
            Err(_) => return Err(Obstacle::End(End::NotAllowed)),
        }
        let expires_at = caller.grant.as_ref().and_then(|grant| grant.credential.expires_at);
        self.voice.look_again(&self.reading, expires_at, out).await
    }
}
