//! One listener: accepts connections within their limits, and ends them gracefully.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::{self, ConnectionOptions};
use super::connection_limiter::{ConnectionLimiter, Permit};
use super::gateway_slot::GatewaySlot;
use super::routes::Surface;
use super::tls::Tls;

/// How long the peer may leave sent data unacknowledged before the connection is closed.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_mins(3);
/// The pause after a failed accept, most likely because file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves one surface on one listener.
pub(super) struct Server {
    /// Answers the requests.
    pub(super) gateway: Arc<GatewaySlot>,
    /// Which paths are answered here.
    pub(super) surface: Surface,
    /// Limits the connections.
    pub(super) limiter: Arc<ConnectionLimiter>,
    /// The certificate; `None`: plain HTTP.
    pub(super) tls: Option<Arc<Tls>>,
    /// Limits of each connection.
    pub(super) options: ConnectionOptions,
    /// How long requests in flight may take after `stop`.
    pub(super) grace: Duration,
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
                Ok(Some((stream, peer, permit))) => {
                    // A child: each poll of a connection locks its token, and all would lock the same one.
                    let (server, stop) = (Arc::clone(&server), stop.child_token());
                    connections.spawn(async move {
                        server.handshake(stream, peer, &stop).await;
                        drop(permit);
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(listener);
        let finished = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!(
                open = connections.len(),
                "requests in flight did not finish within the grace period"
            );
            connections.shutdown().await;
        }
    }

    /// Accepts the next connection; `None` if its address is at its limit.
    async fn accept(&self, listener: &TcpListener) -> std::io::Result<Option<(TcpStream, IpAddr, Permit)>> {
        let slot = self.limiter.reserve().await?;
        let (stream, peer) = listener.accept().await?;
        let peer = peer.ip().to_canonical();
        let Some(permit) = self.limiter.acquire(peer, slot) else { return Ok(None) };
        stream.set_nodelay(true)?;
        set_user_timeout(&stream)?;
        Ok(Some((stream, peer, permit)))
    }

    /// Serves a connection to its end, after the TLS handshake if there is one.
    async fn handshake(&self, stream: TcpStream, peer: IpAddr, stop: &CancellationToken) {
        let (gateway, surface) = (&self.gateway, self.surface);
        let Some(tls) = &self.tls else {
            return connection::serve(stream, peer, (gateway, surface), &self.options, stop).await;
        };
        let handshake = tokio::time::timeout(self.options.timeouts.head, tls.acceptor().accept(stream));
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => {
                Box::pin(connection::serve(stream, peer, (gateway, surface), &self.options, stop)).await;
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
