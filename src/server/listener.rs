//! One listener: accepts connections within their limits, and ends them gracefully.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, ConnectionOptions};
use super::connection_limiter::{ConnectionLimiter, Permit};
use super::gateway_slot::GatewaySlot;
use super::routes::ListenerPaths;
use super::tls::Tls;

/// How long the peer may leave sent data unacknowledged before the connection is closed.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_mins(3);
/// The pause after a failed accept, most likely because file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How many connections that the system has established are accepted after `stop`: all that it keeps for a listener.
const ESTABLISHED: usize = 1024;

/// How long requests may take to be completed once their connections are closed after the grace period.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// A connection with its permit.
type Accepted = (TcpStream, IpAddr, Permit);

/// Serves the paths of one listener.
pub(super) struct Server {
    /// Answers the requests.
    pub(super) gateway: Arc<GatewaySlot>,
    /// Which paths are answered here.
    pub(super) paths: ListenerPaths,
    /// Limits the connections.
    pub(super) limiter: Arc<ConnectionLimiter>,
    /// The certificate; `None`: plain HTTP.
    pub(super) tls: Option<Arc<Tls>>,
    /// Limits of each connection.
    pub(super) options: ConnectionOptions,
    /// How long requests in flight may take after `stop`.
    pub(super) grace: Duration,
    /// Requests whose clients have disconnected.
    pub(super) unanswered: TaskTracker,
}

impl Server {
    /// Accepts connections until `stop`, then waits for requests in flight to finish.
    pub(super) async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let grace = self.grace;
        let (server, mut connections) = (Arc::new(self), JoinSet::new());
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Removes finished connections from the set.
                Some(_) = connections.join_next() => continue,
                accepted = server.accept(&listener) => accepted,
            };
            match accepted {
                Ok(Some(accepted)) => server.spawn(&mut connections, accepted, &stop),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        server.accept_established(listener, &mut connections, &stop);
        server.unanswered.close();
        let finished = async {
            while connections.join_next().await.is_some() {}
            server.unanswered.wait().await;
        };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!(
                open = connections.len(),
                unanswered = server.unanswered.len(),
                "requests in flight did not finish within the grace period"
            );
            connections.shutdown().await;
            // Those of the connections that were closed just now included.
            let _ = tokio::time::timeout(LAST_REQUESTS, server.unanswered.wait()).await;
        }
    }

    /// Accepts the next connection; `None` if its address is at its limit.
    async fn accept(&self, listener: &TcpListener) -> std::io::Result<Option<Accepted>> {
        let slot = self.limiter.reserve().await?;
        let (stream, peer) = listener.accept().await?;
        self.admit(stream, peer, slot)
    }

    /// Prepares a connection; `None` if its address is at its limit.
    fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: OwnedSemaphorePermit,
    ) -> std::io::Result<Option<Accepted>> {
        let peer = peer.ip().to_canonical();
        let Some(permit) = self.limiter.acquire(peer, slot) else { return Ok(None) };
        stream.set_nodelay(true)?;
        set_user_timeout(&stream)?;
        Ok(Some((stream, peer, permit)))
    }

    /// Closes the listener after it accepted what the system has established already: it would reset these connections,
    /// on which requests may have been sent.
    fn accept_established(
        self: &Arc<Self>,
        listener: TcpListener,
        connections: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        let Ok(listener) = listener.into_std() else { return };
        for _ in 0..ESTABLISHED {
            let Some(Ok(slot)) = self.limiter.reserve().now_or_never() else { return };
            let Ok((stream, peer)) = listener.accept() else { return };
            let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let Ok(Some(accepted)) = stream.and_then(|stream| self.admit(stream, peer, slot)) {
                self.spawn(connections, accepted, stop);
            }
        }
    }

    fn spawn(
        self: &Arc<Self>,
        connections: &mut JoinSet<()>,
        (stream, peer, permit): Accepted,
        stop: &CancellationToken,
    ) {
        // A child: each poll of a connection locks its token, and all would lock the same one.
        let (server, stop) = (Arc::clone(self), stop.child_token());
        connections.spawn(async move {
            server.handshake(stream, peer, &stop).await;
            drop(permit);
        });
    }

    /// Serves a connection to its end, after the TLS handshake if there is one.
    async fn handshake(&self, stream: TcpStream, peer: IpAddr, stop: &CancellationToken) {
        let served = (&self.gateway, self.paths);
        match &self.tls {
            None => connection::serve(stream, peer, served, &self.options, &self.unanswered, stop).await,
            // Boxed, so that a connection without TLS does not reserve space for the handshake.
            Some(tls) => Box::pin(self.serve_tls(stream, peer, tls, stop)).await,
        }
    }

    async fn serve_tls(&self, stream: TcpStream, peer: IpAddr, tls: &Tls, stop: &CancellationToken) {
        let handshake = tokio::time::timeout(self.options.timeouts.head, tls.acceptor().accept(stream));
        match Box::pin(stop.run_until_cancelled(handshake)).await {
            Some(Ok(Ok(stream))) => {
                let served = (&self.gateway, self.paths);
                // Boxed: the future that serves it would have space for the stream twice.
                connection::serve(Box::new(stream), peer, served, &self.options, &self.unanswered, stop)
                    .await;
            }
            Some(Ok(Err(error))) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Some(Err(_)) => tracing::debug!(%peer, "TLS handshake timed out"),
            None => {}
        }
    }
}

/// Closes a connection whose peer acknowledges nothing for [`USER_TIMEOUT`]: the keep-alives of a stream must be
/// acknowledged in time. A peer that only stops reading acknowledges them, until that time has passed as well.
#[cfg(target_os = "linux")]
fn set_user_timeout(stream: &TcpStream) -> std::io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    let millis = u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &millis)?)
}

/// Other systems give up by themselves, though later.
#[cfg(not(target_os = "linux"))]
fn set_user_timeout(_: &TcpStream) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::{Environment, Flags, Loaded, Purpose, load};
    use crate::http::client_address::TrustedProxies;
    use crate::http::origin::OriginRules;
    use crate::http::request_id::RequestIds;
    use crate::model::system::SystemRandom;

    /// The answer of a gateway that is not built yet, and is stopped.
    async fn answer(request: &str) -> String {
        let Loaded { settings, .. } =
            load(&Environment::default(), &Flags::default(), Purpose::Assist).unwrap();
        let server = Server {
            gateway: Arc::new(GatewaySlot::new(
                RequestIds::new(&SystemRandom).unwrap(),
                OriginRules::new(&settings.server),
            )),
            paths: ListenerPaths::All,
            limiter: Arc::new(ConnectionLimiter::new(1, 1, TrustedProxies::default())),
            tls: None,
            options: ConnectionOptions::new(&settings),
            grace: Duration::from_secs(10),
            unanswered: TaskTracker::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        server.serve(listener, stop).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test]
    async fn established_connections_are_answered_after_stop() {
        let answer = answer("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn pages_of_allowed_origins_read_answers_before_the_gateway_is_built() {
        let ask = async |method: &str, path: &str, origin: &str| {
            answer(&format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n\r\n")).await
        };
        let allowed = |answer: &str, header: &str| answer.contains(&format!("\r\naccess-control-{header}: "));
        let (ours, other) = ("http://localhost:3000", "https://evil.example");
        for path in ["/a/mcp", "/admin/v1/agents", "/metrics"] {
            let preflight = ask("OPTIONS", path, ours).await;
            assert!(preflight.starts_with("HTTP/1.1 204 No Content\r\n"), "{preflight}");
            assert!(
                allowed(&preflight, "allow-methods") && allowed(&preflight, "allow-headers"),
                "{preflight}"
            );
            let unready = ask("GET", path, ours).await;
            assert!(unready.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{unready}");
            assert!(allowed(&unready, "allow-origin") && allowed(&unready, "expose-headers"), "{unready}");
            assert_eq!(
                (unready.matches("vary: Origin").count(), preflight.matches("vary: Origin").count()),
                (1, 1)
            );
            for method in ["OPTIONS", "GET"] {
                let refused = ask(method, path, other).await;
                assert!(
                    refused.starts_with("HTTP/1.1 503 ") && !allowed(&refused, "allow-origin"),
                    "{refused}"
                );
            }
        }
        let health = ask("OPTIONS", "/readyz", ours).await;
        assert!(health.starts_with("HTTP/1.1 405 ") && !allowed(&health, "allow-origin"), "{health}");
    }
}
