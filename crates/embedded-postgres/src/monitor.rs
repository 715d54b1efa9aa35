//! Supervises the server: restarts it when it exits, stops it on request.

use std::time::Duration;

use tokio::time::{Instant, interval, sleep};

use crate::guardian::GuardedProcess;
use crate::server::Server;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// After this uptime the delays between restarts start over.
const STABLE_AFTER: Duration = Duration::from_mins(1);
const LOG_CHECK: Duration = Duration::from_secs(30);

/// Restarts the server until a stop is requested, then stops it. Releases the data directory after that.
pub(super) async fn supervise(server: Server, mut running: GuardedProcess) {
    let mut delay = FIRST_DELAY;
    loop {
        let since = Instant::now();
        tokio::select! {
            () = server.stop.cancelled() => break,
            status = exited(&server, &mut running) => {
                tracing::warn!(%status, "embedded database exited; restarting");
            }
        }
        // If the guardian was killed, its server may still run: it is stopped before another one is started.
        drop(running);
        if since.elapsed() >= STABLE_AFTER {
            delay = FIRST_DELAY;
        }
        let Some(again) = restart(&server, &mut delay).await else { return };
        running = again;
        tracing::info!("embedded database restarted");
    }
    if !running.stop().await {
        tracing::warn!("embedded database did not stop in time");
    }
}

/// Waits for the server to exit and returns its status; meanwhile truncates its log.
async fn exited(server: &Server, running: &mut GuardedProcess) -> String {
    let mut log_check = interval(LOG_CHECK);
    loop {
        tokio::select! {
            status = running.wait() => return status.map_or_else(|error| error.to_string(), |it| it.to_string()),
            _ = log_check.tick() => server.guardian.log.truncate(),
        }
    }
}

/// Retries with growing delays until the server runs or a stop is requested.
async fn restart(server: &Server, delay: &mut Duration) -> Option<GuardedProcess> {
    loop {
        tokio::select! {
            () = server.stop.cancelled() => return None,
            () = sleep(*delay) => *delay = (*delay * 2).min(LONGEST_DELAY),
        }
        match server.start().await {
            Ok(running) => return Some(running),
            Err(_) if server.stop.is_cancelled() => return None,
            Err(error) => {
                let retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(%error, retry_in_ms, "embedded database not restarted; retrying");
            }
        }
    }
}
