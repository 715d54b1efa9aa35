//! Connections: accepted, bounded, ended gracefully.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatch::{Entrance, Surface};
use super::places::{Place, Places};
use super::pulse::{Noticed, Patience, Pulse};
use super::tls::Tls;

/// A client that acknowledges nothing, or takes nothing, for longer is gone.
#[cfg(target_os = "linux")]
const DEAD_AFTER: Duration = Duration::from_mins(3);
/// After an accept that failed, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What hyper makes room for on the stack; any other number is on the heap.
const USUAL_HEADERS: usize = 100;

/// Requests of one connection of HTTP/2 at once.
const CONCURRENT_STREAMS: u32 = 128;
/// Requests that a client took back before they were looked at, of one connection at once: with more, it is closed
/// (CVE-2023-44487).
const TAKEN_BACK: usize = 20;
/// Breaches of the protocol that end a request each; with more, the connection is closed.
const RESET_FOR_CAUSE: usize = 64;
/// Bytes of bodies that a connection of HTTP/2, and one request on it, may send before something reads them. They are in
/// memory without being reserved for anybody.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 128 * 1024;
/// How often a connection of HTTP/2 is asked whether anybody is there, and how long the answer may take. Whoever sends
/// a head in pieces for ever cannot answer in between.
const PING: Duration = Duration::from_secs(20);

/// What bounds the connections of a listener.
#[derive(Debug, Clone)]
pub(super) struct ConnectionOptions {
    /// How long they may take.
    pub(super) patience: Patience,
    /// Headers of one request.
    pub(super) header_count: usize,
    /// Bytes of the head of one request.
    pub(super) header_bytes: u32,
    /// How long requests under way may go on at the end.
    pub(super) grace: Duration,
}

/// A listener, and what answers on it.
pub(super) struct Door {
    /// What answers.
    pub(super) entrance: Arc<Entrance>,
    /// What is answered here.
    pub(super) surface: Surface,
    /// How many may come.
    pub(super) places: Arc<Places>,
    /// What TLS is spoken with, if it is.
    pub(super) tls: Option<Arc<Tls>>,
    /// The bounds.
    pub(super) options: ConnectionOptions,
}

impl Door {
    /// Serves a surface on a listener until `stop`, then gives requests under way their time to finish.
    pub(super) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let grace = self.options.grace;
        let (door, mut connections) = (Arc::new(self), JoinSet::new());
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // What has ended is let go of.
                Some(_) = connections.join_next() => continue,
                accepted = door.accept(&listener) => accepted,
            };
            match accepted {
                Ok(Some((stream, peer, place))) => {
                    let (door, stop) = (Arc::clone(&door), stop.clone());
                    connections.spawn(async move {
                        door.welcome(stream, peer, &stop).await;
                        drop(place);
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        let finished = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!("some requests did not finish in time");
            connections.shutdown().await;
        }
    }

    /// The next connection; `None` for one too many.
    async fn accept(&self, listener: &TcpListener) -> std::io::Result<Option<(TcpStream, IpAddr, Place)>> {
        let place = self.places.free().await?;
        let (stream, peer) = listener.accept().await?;
        let peer = peer.ip().to_canonical();
        let Some(place) = self.places.take(peer, place) else {
            tracing::debug!(%peer, "an address has as many connections as it may");
            return Ok(None);
        };
        stream.set_nodelay(true)?;
        notice_the_dead(&stream)?;
        Ok(Some((stream, peer, place)))
    }

    /// Serves a connection to its end, after the handshake if there is one.
    async fn welcome(&self, stream: TcpStream, peer: IpAddr, stop: &CancellationToken) {
        let Some(tls) = &self.tls else { return self.hold(stream, peer, stop).await };
        let handshake = tokio::time::timeout(self.options.patience.head, tls.acceptor().accept(stream));
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => Box::pin(self.hold(stream, peer, stop)).await,
            Some(Ok(Err(error))) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
            Some(Err(_)) => tracing::debug!(%peer, "a TLS handshake took too long"),
            None => {}
        }
    }

    async fn hold<S>(&self, stream: S, peer: IpAddr, stop: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let pulse = Pulse::new(self.options.patience);
        let (entrance, surface) = (Arc::clone(&self.entrance), self.surface);
        let beats = Arc::clone(&pulse);
        let service = service_fn(move |request| {
            let (entrance, under_way) = (Arc::clone(&entrance), beats.begin());
            // A connection keeps room for what answers it for as long as it is open: boxed, those that wait, with or
            // without a stream, hold a pointer instead of 7 KB.
            Box::pin(async move {
                let response = entrance.answer(request, peer, surface).await;
                Ok::<_, Infallible>(response.map(|body| under_way.until_taken(body)))
            })
        });
        let io = TokioIo::new(Noticed { stream, pulse: Arc::clone(&pulse) });
        let builder = self.options.builder();
        let mut connection = pin!(builder.serve_connection(io, service));
        let (mut stopping, mut closing) = (pin!(stop.cancelled()), false);
        let mut timer = pin!(tokio::time::sleep(self.options.patience.idle));
        let ended = poll_fn(|context| {
            loop {
                if !closing && stopping.as_mut().poll(context).is_ready() {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                    return Poll::Ready(Some(ended));
                }
                let Some(deadline) = pulse.deadline() else { return Poll::Pending };
                // One that lies before the deadline is not set anew for each request: it is when it has passed.
                if deadline < timer.deadline() || timer.is_elapsed() {
                    timer.as_mut().reset(deadline);
                }
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                if pulse.deadline().is_none_or(|deadline| deadline > Instant::now()) {
                    continue;
                }
                if closing || pulse.is_in_head() {
                    return Poll::Ready(None);
                }
                // One that is idle is told so, lest a request is on its way that nobody would answer.
                closing = true;
                connection.as_mut().graceful_shutdown();
                timer.as_mut().reset(Instant::now() + self.options.patience.head);
            }
        });
        match ended.await {
            Some(Ok(())) => {}
            // A client that went away, or one that does not speak HTTP: nothing of ours.
            Some(Err(error)) => tracing::debug!(%peer, %error, "a connection ended early"),
            None => tracing::debug!(%peer, "a connection was closed: no request came in time"),
        }
    }
}

impl ConnectionOptions {
    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        let mut first = builder.http1();
        // The pulse has the time of heads, which tells it from that of an idle connection.
        first.timer(TokioTimer::new()).header_read_timeout(None);
        first.max_buf_size(self.header_bytes as usize);
        if self.header_count != USUAL_HEADERS {
            first.max_headers(self.header_count);
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(CONCURRENT_STREAMS)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_pending_accept_reset_streams(TAKEN_BACK)
            .max_local_error_reset_streams(RESET_FOR_CAUSE)
            .max_header_list_size(self.header_bytes)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        builder
    }
}

/// Has the system find out when nobody is there any more: what is sent, the sign of life of a stream most of all, must be
/// acknowledged in time. Who only stops reading for a while acknowledges all the same, but not for longer than that.
#[cfg(target_os = "linux")]
fn notice_the_dead(stream: &TcpStream) -> std::io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    let millis = u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &millis)?)
}

/// Other systems give up by themselves, if later.
#[cfg(not(target_os = "linux"))]
fn notice_the_dead(_: &TcpStream) -> std::io::Result<()> {
    Ok(())
}
