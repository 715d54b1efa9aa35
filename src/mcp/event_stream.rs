//! An open event stream of either era: sends notifications and keep-alive comments (heartbeat), and ends when its caller
//! loses access, for example by a revoked key.
//!
//! A stream is polled by its connection. Its deadlines (the next comment and check, the expiry of its credential) are
//! points in time that no event moves. A connection whose peer reads nothing does not poll, so a supervisor checks such
//! a stream at the same interval: it ends in time, with its permit and its audit row, and its last event waits for the
//! peer.

use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::event_trace::EventTrace;
use super::sse::KEEP_ALIVE;
use super::stream_audit::StreamAuditGuard;
use super::streams::{StreamEnd, StreamPermit};
use crate::feed::hub::{ChangeEvent, Subscription};
use crate::identity::Identity;
use crate::identity::grant::Caller;
use crate::model::backoff::Backoff;
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;
use crate::model::scope::Scope;

/// Once this many bytes are to be sent, no further notification is added; the rest stays in the dirty set.
const CHUNK: usize = 4 * 1024;
/// When a failed check is retried.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(2));

/// Encodes the events of a stream as an era has them.
pub(super) trait StreamEncoder: Send + Sync + 'static {
    /// Appends the notification of a change.
    fn notification(&mut self, out: &mut Vec<u8>, change: &ChangeEvent);

    /// Appends the last event.
    fn last(&mut self, out: &mut Vec<u8>, end: StreamEnd);

    /// Checks what the stream depends on besides its caller, and appends the events that follow. The caller's credential
    /// expires at `expires_at`, as of its newest grant.
    fn check(
        &mut self,
        subscription: &Subscription,
        expires_at: Option<OffsetDateTime>,
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Result<(), Obstacle>> + Send;
}

/// Why a stream cannot continue now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It must end.
    End(StreamEnd),
    /// The check failed and is retried.
    Unknown,
}

/// The services and permits of a stream.
pub(super) struct StreamContext {
    pub(super) identity: Arc<Identity>,
    pub(super) feed: Arc<dyn ChangeFeed>,
    pub(super) caller: Caller,
    pub(super) keep_alive: Duration,
    /// Cancelled at shutdown, which then requests a recheck of every stream.
    pub(super) closing: CancellationToken,
    pub(super) permit: StreamPermit,
    /// Exports the spans of events, if traces are exported.
    pub(super) trace: Option<EventTrace>,
}

/// A stream, shared by the connection that polls it and its supervisor.
struct EventStream<E> {
    /// `None` once the stream has ended.
    open: Option<Open<E>>,
    /// Sent before anything else: the first event, or what the supervisor appended.
    pending: Vec<u8>,
}

struct Open<E> {
    context: StreamContext,
    subscription: Subscription,
    encoder: E,
    audit: StreamAuditGuard,
    /// When the next comment and the next check are due, regardless of events sent in between.
    next_check: Instant,
    /// When a failed check is retried, and how many in a row have failed.
    retry: Option<(Instant, u32)>,
}

/// The bytes of a stream, `first` before everything else.
pub(super) fn events<E: StreamEncoder>(
    context: StreamContext,
    subscription: Subscription,
    encoder: E,
    first: Vec<u8>,
    mut audit: StreamAuditGuard,
) -> Pin<Box<dyn Stream<Item = Bytes> + Send>> {
    // A change between admission and here is found by the first check.
    subscription.request_recheck();
    audit.sent(first.len());
    let (every, closing) = (context.keep_alive, context.closing.clone());
    let next_check = Instant::now() + every;
    let open = Open { context, subscription, encoder, audit, next_check, retry: None };
    // On the heap once: both the state and the future of `unfold` reserve space for what they exchange.
    let stream = Arc::new(Mutex::new(EventStream { open: Some(open), pending: first }));
    let supervisor = AbortOnDropHandle::new(tokio::spawn(supervise(Arc::downgrade(&stream), every, closing)));
    // Kept between events: registering a timer takes a lock that all streams share.
    let timer = Box::pin(tokio::time::sleep_until(next_check));
    Box::pin(unfold((stream, supervisor, timer), |(stream, supervisor, mut timer)| async move {
        let bytes = stream.lock().await.next(timer.as_mut()).await?;
        Some((bytes, (stream, supervisor, timer)))
    }))
}

/// Checks a stream that its connection does not poll because the peer reads nothing. A polled stream checks itself.
async fn supervise<E: StreamEncoder>(
    stream: Weak<Mutex<EventStream<E>>>,
    every: Duration,
    closing: CancellationToken,
) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shutdown = pin!(closing.cancelled());
    let mut was_shutdown = false;
    loop {
        let at_shutdown = tokio::select! {
            _ = ticks.tick() => false,
            // At once, since a shutdown does not wait for a tick.
            () = &mut shutdown, if !was_shutdown => true,
        };
        was_shutdown |= at_shutdown;
        let Some(stream) = stream.upgrade() else { return };
        let mut stream = match stream.try_lock() {
            Ok(stream) => stream,
            // Its connection checks it now, and may be blocked after that.
            Err(_) if at_shutdown => stream.lock().await,
            Err(_) => continue,
        };
        match &stream.open {
            Some(open) => open.subscription.request_recheck(),
            None => return,
        }
        stream.step(false).await;
    }
}

impl<E: StreamEncoder> EventStream<E> {
    async fn next(&mut self, mut timer: Pin<&mut Sleep>) -> Option<Bytes> {
        loop {
            if !self.pending.is_empty() {
                return Some(std::mem::take(&mut self.pending).into());
            }
            self.open.as_ref()?.wait(timer.as_mut()).await;
            self.step(true).await;
        }
    }

    /// Ends the stream if it must end, or appends the events that are due. No events are appended for a peer that reads
    /// nothing.
    async fn step(&mut self, polled: bool) {
        let Some(open) = &mut self.open else { return };
        let mut out = std::mem::take(&mut self.pending);
        let before = out.len();
        let ended = match open.check(&mut out, polled).await {
            Ok(may_notify) => {
                if may_notify && polled {
                    open.notify(&mut out);
                }
                false
            }
            Err(end) => {
                open.audit.ended(end);
                open.encoder.last(&mut out, end);
                true
            }
        };
        open.audit.sent(out.len() - before);
        self.pending = out;
        if ended {
            // The permit and the subscription are released and the audit row is written now, whenever the last event is
            // read.
            self.open = None;
        }
    }
}

impl<E: StreamEncoder> Open<E> {
    /// Waits for a change or a deadline. Deadlines come first: a busy stream never waits.
    async fn wait(&self, mut timer: Pin<&mut Sleep>) {
        let deadline = self.deadline();
        // A timer that elapses too early does no harm: the stream checks, and waits again.
        if deadline < timer.deadline() || timer.is_elapsed() {
            timer.as_mut().reset(deadline);
        }
        tokio::select! {
            biased;
            () = timer => {}
            () = self.subscription.ready(), if self.retry.is_none() => {}
            () = async { self.context.closing.cancelled().await }, if self.retry.is_some() => {}
        }
    }

    /// The next deadline.
    fn deadline(&self) -> Instant {
        let expires = self.expires_in().map(|left| Instant::now() + left.min(self.context.keep_alive));
        let retry = self.retry.map(|(at, _)| at);
        [expires, retry].into_iter().flatten().fold(self.next_check, Instant::min)
    }

    /// The time until the newest known grant of the caller expires.
    fn expires_in(&self) -> Option<Duration> {
        self.context.identity.expires_in(&self.context.caller)
    }

    fn has_expired(&self) -> bool {
        self.expires_in().is_some_and(|left| left.is_zero())
    }

    /// Whether notifications may be sent now; appends the keep-alive comment that is due on a polled connection.
    async fn check(&mut self, out: &mut Vec<u8>, polled: bool) -> Result<bool, StreamEnd> {
        if self.retry.is_some() && self.context.closing.is_cancelled() {
            return Err(StreamEnd::Shutdown);
        }
        let now = Instant::now();
        if polled && now >= self.next_check {
            self.next_check = now + self.context.keep_alive;
            self.subscription.request_recheck();
            out.extend_from_slice(&KEEP_ALIVE);
        }
        let expired = self.has_expired();
        if expired {
            self.subscription.request_recheck();
        } else if self.retry.is_some_and(|(at, _)| now < at) {
            return Ok(false);
        }
        match self.check_access(out).await {
            Err(Obstacle::End(end)) => Err(end),
            // No newer grant was found.
            _ if self.has_expired() => Err(StreamEnd::NotAllowed),
            Err(Obstacle::Unknown) => {
                self.subscription.request_recheck();
                let failures = self.retry.map_or(0, |(_, failures)| failures);
                let delay = RETRY.jittered(failures, self.context.identity.random());
                self.retry = Some((Instant::now() + delay, failures.saturating_add(1)));
                Ok(false)
            }
            Ok(()) => {
                self.retry = None;
                Ok(true)
            }
        }
    }

    /// Appends pending notifications until there are [`CHUNK`] bytes.
    fn notify(&mut self, out: &mut Vec<u8>) {
        while out.len() < CHUNK
            && let Some(change) = self.subscription.next()
        {
            self.encoder.notification(out, &change);
            self.context.permit.notified();
            if let Some(trace) = &self.context.trace {
                trace.sent(change);
            }
        }
    }

    /// Checks the access of the stream, if something that decides about it may have changed.
    async fn check_access(&mut self, out: &mut Vec<u8>) -> Result<(), Obstacle> {
        if !self.context.feed.unproven_for().is_zero() {
            // A shutdown does not wait for a sweep.
            self.check_open()?;
            // A change of access may have been missed.
            Arc::clone(&self.context.feed).confirm().await.map_err(|_| Obstacle::Unknown)?;
        }
        if !self.subscription.take_recheck() {
            return Ok(());
        }
        // After the request is taken: a shutdown requests a recheck after it cancels the token, which all streams share and
        // do not read for each event.
        self.check_open()?;
        // Boxed: a waiting stream, as nearly all are, does not reserve space for it.
        Box::pin(self.readmit(out)).await
    }

    fn check_open(&self) -> Result<(), Obstacle> {
        if self.context.closing.is_cancelled() { Err(Obstacle::End(StreamEnd::Shutdown)) } else { Ok(()) }
    }

    /// Admits the caller again by its newest grant and its labels, then checks what the era depends on.
    async fn readmit(&mut self, out: &mut Vec<u8>) -> Result<(), Obstacle> {
        let StreamContext { identity, caller, .. } = &mut self.context;
        match identity.readmit(caller).await {
            // With the reach of the grant before: that of a credential never changes.
            Ok(grant) => caller.grant = grant,
            Err(Fault::StorageUnavailable | Fault::Unavailable { .. } | Fault::Internal(_)) => {
                return Err(Obstacle::Unknown);
            }
            Err(_) => return Err(Obstacle::End(StreamEnd::NotAllowed)),
        }
        let labels = caller.labels();
        if labels != self.subscription.labels() {
            let tenant = caller.credential().map_or(caller.tenant, |credential| credential.tenant);
            let relabeled = self.subscription.relabel(labels, Scope::from(tenant)).await;
            relabeled.map_err(|_| Obstacle::Unknown)?;
        }
        let expires_at = caller.grant.as_ref().and_then(|grant| grant.credential.expires_at);
        self.encoder.check(&self.subscription, expires_at, out).await
    }
}
