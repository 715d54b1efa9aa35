//! Connections: accepted, bounded, ended gracefully.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::dispatch::{Gateway, Surface};

/// Connections of one listener at once; the next one waits in the system's queue.
const MOST_CONNECTIONS: usize = 10_000;
/// How long a client may take over the head of a request, and leave a connection idle before it: longer than the 90
/// seconds for which clients keep idle connections, lest one closes under a request that is just being sent.
const HEAD_PATIENCE: Duration = Duration::from_secs(95);
/// A client that acknowledges nothing, or takes nothing, for longer is gone.
#[cfg(target_os = "linux")]
const DEAD_AFTER: Duration = Duration::from_mins(3);
/// After an accept that failed, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a surface on a listener until `stop`, then gives requests under way `grace` to finish.
pub(super) async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    surface: Surface,
    stop: CancellationToken,
    grace: Duration,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &places)).await {
        match accepted {
            Ok((stream, peer, place)) => {
                let connection = connect(stream, peer, &gateway, surface, &graceful);
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    notice_the_dead(&stream)?;
    Ok((stream, peer.ip().to_canonical(), place))
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

fn connect(
    stream: TcpStream,
    peer: IpAddr,
    gateway: &Arc<Gateway>,
    surface: Surface,
    graceful: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + 'static {
    let gateway = Arc::clone(gateway);
    let service = service_fn(move |request| {
        let gateway = Arc::clone(&gateway);
        // A connection keeps room for what answers it for as long as it is open: boxed, those that wait, with or
        // without a stream, hold a pointer instead of 7 KB.
        Box::pin(async move { Ok::<_, Infallible>(gateway.answer(request, peer, surface).await) })
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(128);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let watched = graceful.watch(connection);
    async move {
        if let Err(error) = watched.await {
            // A client that went away, or one that does not speak HTTP: nothing of ours.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Begins to hear SIGTERM and SIGINT, at once: the first process of a container has no default for them. Answers what
/// ends with the first of them; a second SIGINT ends the process on the spot.
///
/// # Errors
/// When the system lets nobody hear them.
pub(super) fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::spawn(async move {
            interrupt.recv().await;
            std::process::exit(130);
        });
    })
}
