//! One connection: HTTP/1.1 or HTTP/2 within its limits, closed at its deadline or gracefully at shutdown.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deadline::{ConnectionDeadline, Sharing, Timeouts};
use super::detachment::{DetachedStream, Detachment};
use super::gateway_slot::GatewaySlot;
use super::routes::ListenerPaths;
use super::tracked_socket::TrackedSocket;
use super::unanswered::Answering;
use crate::config::Settings;

/// The number of headers that hyper parses on the stack; any other limit allocates.
const DEFAULT_HEADERS: usize = 100;

/// Concurrent requests of one HTTP/2 connection.
const CONCURRENT_STREAMS: u32 = 128;
/// Requests of one connection that the client reset before they were accepted; with more, the connection is closed
/// (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Requests of one connection that were reset for protocol errors; with more, the connection is closed.
const ERROR_RESETS: usize = 64;
/// Bytes of request bodies that an HTTP/2 connection, and one request on it, may send before they are read. They are
/// in memory without a reservation.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 128 * 1024;
/// The interval of HTTP/2 pings, and the time to answer one. A peer that sends an endless header block cannot answer.
const PING: Duration = Duration::from_secs(20);
/// How long a connection on which nothing was received yet stays open after `stop`: its first request may be on its way.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Limits of a connection.
#[derive(Debug, Clone)]
pub(super) struct ConnectionOptions {
    /// Timeouts between requests, and of answers.
    pub(super) timeouts: Timeouts,
    /// Headers of one request.
    header_count: usize,
    /// Bytes of the head of one request.
    header_bytes: u32,
}

impl ConnectionOptions {
    /// The limits of the settings.
    pub(super) fn new(settings: &Settings) -> Self {
        let server = &settings.server;
        Self {
            timeouts: Timeouts {
                head: server.head,
                idle: server.idle,
                answer: server.answer,
                answer_bytes_per_second: server.answer_bytes_per_second,
            },
            header_count: server.header_count,
            header_bytes: server.header_bytes,
        }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        let mut http1 = builder.http1();
        // `ConnectionDeadline` limits the time of a head: hyper's timeout would also close idle connections.
        http1.timer(TokioTimer::new()).header_read_timeout(None);
        http1.max_buf_size(self.header_bytes as usize);
        if self.header_count != DEFAULT_HEADERS {
            http1.max_headers(self.header_count);
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(CONCURRENT_STREAMS)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(ERROR_RESETS)
            .max_header_list_size(self.header_bytes)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        builder
    }
}

/// How hyper stopped serving a connection.
enum End<S> {
    /// It was closed: by the client, or gracefully.
    Closed(Result<(), Box<dyn Error + Send + Sync>>),
    /// It is closed now.
    Due,
    /// Its last answer is an event stream, which is sent without hyper.
    Detached(DetachedStream<S>),
}

/// Serves the requests of a connection until it is closed: by the client, at its deadline, or after `stop` once the
/// requests in flight are answered. What is unanswered when it closes is completed in the tasks of `unanswered`.
pub(super) async fn serve<S>(
    socket: S,
    peer: IpAddr,
    served: (&Arc<GatewaySlot>, ListenerPaths),
    options: &ConnectionOptions,
    unanswered: &TaskTracker,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ended = match serve_requests(socket, peer, served, options, unanswered, stop).await {
        End::Closed(closed) => closed,
        End::Due => return tracing::debug!(%peer, "connection closed at its deadline"),
        End::Detached(stream) => stream.await.map_err(Into::into),
    };
    if let Err(error) = ended {
        // The client disconnected, or did not send HTTP.
        tracing::debug!(%peer, %error, "connection ended early");
    }
}

async fn serve_requests<S>(
    socket: S,
    peer: IpAddr,
    (gateway, paths): (&Arc<GatewaySlot>, ListenerPaths),
    options: &ConnectionOptions,
    unanswered: &TaskTracker,
    stop: &CancellationToken,
) -> End<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let detachment = Arc::new(Detachment::default());
    let deadline = ConnectionDeadline::new(options.timeouts);
    let gateway = Arc::clone(gateway);
    let (requests, detaching, unanswered) =
        (Arc::clone(&deadline), Arc::clone(&detachment), unanswered.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (gateway, in_flight) = (Arc::clone(&gateway), requests.begin());
        let detaching = Arc::clone(&detaching);
        let (parts, body) = request.into_parts();
        let answer = async move {
            let mut response = gateway.answer((&parts, body), peer, paths).await;
            if parts.version == Version::HTTP_11 {
                detaching.take_events(&mut response);
            }
            Ok::<_, Infallible>(in_flight.until_sent(response))
        };
        Answering::new(answer, unanswered.clone())
    });
    let io = TokioIo::new(TrackedSocket::new(socket, Arc::clone(&deadline), Arc::clone(&detachment)));
    let builder = options.builder();
    // Boxed, so that a detached stream does not keep the space.
    let mut served = Box::pin(builder.serve_connection(io, service));
    let (mut stopping, mut stopped, mut closing) = (pin!(stop.cancelled()), None, false);
    // Until when requests that are in flight or on their way are waited for, once the connection was due.
    let mut grace = None;
    let mut timer = pin!(tokio::time::sleep(options.timeouts.idle));
    poll_fn(|context| {
        loop {
            if stopped.is_none() && stopping.as_mut().poll(context).is_ready() {
                stopped = Some(Instant::now());
            }
            if stopped.is_some() && !closing && !deadline.is_unused() {
                closing = true;
                served.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = served.as_mut().poll(context) {
                return Poll::Ready(End::Closed(ended));
            }
            if let Some(stream) = detachment.take() {
                return Poll::Ready(End::Detached(stream));
            }
            let Some(due) = deadline.get() else { return Poll::Pending };
            let due = match (grace, stopped) {
                (Some(grace), _) => due.max(grace),
                (None, Some(stopped)) if !closing => due.min(stopped + FIRST_REQUEST),
                _ => due,
            };
            // A timer before the deadline is not reset for each request, only once it has elapsed.
            if due < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if deadline.get().is_none_or(|now_due| now_due.min(due) > Instant::now()) {
                continue;
            }
            let sending = deadline.sending();
            if closing || deadline.is_in_head() || sending == Some(Sharing::Alone) {
                return Poll::Ready(End::Due);
            }
            // An idle connection is closed gracefully: a request may be on its way. So is one with an answer that its client
            // does not receive beside others.
            closing = true;
            served.as_mut().graceful_shutdown();
            let timeouts = &options.timeouts;
            grace = Some(Instant::now() + if sending.is_some() { timeouts.answer } else { timeouts.head });
        }
    })
    .await
}
