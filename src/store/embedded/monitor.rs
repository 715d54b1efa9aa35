//! Watches the server: starts it again when it dies, ends it when the gateway stops.

use std::time::Duration;

use tokio::time::{Instant, interval, sleep};

use super::guardian::Guarded;
use super::server::Server;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// A server that lived this long is taken for healthy: the delays begin anew.
const HEALTHY: Duration = Duration::from_mins(1);
const LOG_CHECK: Duration = Duration::from_secs(30);

/// Keeps `running` alive until the server is to stop, then ends it. Gives up the data directory only after that.
pub(super) async fn watch(server: Server, mut running: Guarded) {
    let mut delay = FIRST_DELAY;
    loop {
        let since = Instant::now();
        tokio::select! {
            () = server.stop.cancelled() => break,
            status = lost(&server, &mut running) => {
                tracing::warn!(%status, "the embedded database ended; it is started again");
            }
        }
        // Ends what a killed guardian may have left, before another server is started.
        drop(running);
        if since.elapsed() >= HEALTHY {
            delay = FIRST_DELAY;
        }
        let Some(again) = restart(&server, &mut delay).await else { return };
        running = again;
        tracing::warn!("the embedded database runs again");
    }
    if !running.end().await {
        tracing::warn!("the embedded database did not end in time");
    }
}

/// Returns how the server ended; meanwhile keeps its log short.
async fn lost(server: &Server, running: &mut Guarded) -> String {
    let mut log_check = interval(LOG_CHECK);
    loop {
        tokio::select! {
            status = running.wait() => return status.map_or_else(|error| error.to_string(), |it| it.to_string()),
            _ = log_check.tick() => server.guardian.log.cut(),
        }
    }
}

/// Tries until the server runs or is to stop, with pauses that grow to a bound.
async fn restart(server: &Server, delay: &mut Duration) -> Option<Guarded> {
    loop {
        tokio::select! {
            () = server.stop.cancelled() => return None,
            () = sleep(*delay) => *delay = (*delay * 2).min(LONGEST_DELAY),
        }
        match server.start().await {
            Ok(running) => return Some(running),
            Err(_) if server.stop.is_cancelled() => return None,
            Err(error) => {
                tracing::warn!(%error, next_try_in = ?*delay, "the embedded database did not start");
            }
        }
    }
}
