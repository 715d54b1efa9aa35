//! Shutdown of the writer: flushes all events and closes the chain.

use tokio::time::{Duration, Instant, timeout_at};

use super::Writer;
use crate::audit::backlog::Backlog;

/// How long the shutdown may wait for the database.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long a batch may wait for the database during the shutdown, if `audit.patience_ms` is not shorter: the process may
/// be killed before it ends.
const BATCH_TIMEOUT: Duration = Duration::from_millis(500);

impl Writer {
    /// Flushes all events and closes the chain. What the database does not accept in time remains in the
    /// spill file, for the next process.
    pub(super) async fn finish(mut self) {
        self.timeout = self.timeout.min(BATCH_TIMEOUT);
        self.write_queued(usize::MAX).await;
        self.outbox.waiting = true;
        if !self.flush(Instant::now() + SHUTDOWN_TIMEOUT).await {
            // Written to the spill file as far as there is room.
            self.write_queued(usize::MAX).await;
            tracing::warn!("audit chain left open; the next start with this spill directory closes it");
            return;
        }
        let at = self.system.clock.now();
        let Some(mut log) = self.jobs.take_log() else { return };
        match log.close_chain(self.end.chain, at).await {
            Ok(()) => {
                if let Ok(Err(error)) = self.with_backlog(Backlog::remove).await {
                    tracing::warn!(%error, "removing the audit spill file failed");
                }
            }
            Err(error) => tracing::warn!(%error, "closing the audit chain failed"),
        }
        log.close().await;
    }

    /// Flushes everything into the log; returns whether that succeeded before the deadline.
    async fn flush(&mut self, deadline: Instant) -> bool {
        while Instant::now() < deadline {
            if !self.jobs.is_idle() {
                // A running operation continues after the deadline, so that its batch is not dropped.
                let Ok(result) = timeout_at(deadline, self.jobs.finished()).await else { break };
                self.finish_job(result).await;
            } else if self.jobs.retry_at.is_some() {
                break;
            } else if self.end.unknown || self.is_behind() || self.blocked.is_some() || self.outbox.waiting {
                self.start_next_job().await;
            } else {
                self.write_queued(usize::MAX).await;
                return self.queue.is_empty() && self.blocked.is_none() && !self.is_behind();
            }
        }
        false
    }
}
