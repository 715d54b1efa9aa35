//! The end of a writer: what is there is written, and the chain ended.

use tokio::time::{Duration, Instant, timeout_at};

use super::Writer;
use crate::audit::backlog::Backlog;
use crate::audit::work::under_way;

/// How long the end may wait for the database.
const END_PATIENCE: Duration = Duration::from_millis(1_500);

impl Writer {
    /// Writes what is there, and ends the chain; what the database does not take in time stays in the file for the next
    /// process.
    pub(super) async fn finish(mut self) {
        self.take().await;
        self.outbox = true;
        if !self.write_out(Instant::now() + END_PATIENCE).await {
            // Nothing is left in memory that has room in the file.
            self.take().await;
            tracing::warn!("the audit chain stays open; the next start in this directory ends it");
            return;
        }
        let at = self.sources.clock.now();
        let Some(mut log) = self.log.take() else { return };
        match log.close_chain(self.chain, at).await {
            Ok(()) => {
                if let Ok(Err(error)) = self.with_backlog(Backlog::remove).await {
                    tracing::warn!(%error, "the spill file of the audit log cannot be removed");
                }
            }
            Err(error) => tracing::warn!(%error, "the audit chain stays open"),
        }
        log.close().await;
    }

    /// Whether everything is in the log before the deadline.
    async fn write_out(&mut self, deadline: Instant) -> bool {
        while Instant::now() < deadline {
            if self.work.is_some() {
                // What is under way stays so when the time is over: nothing that was taken from the queue is dropped.
                let Ok((log, done)) = timeout_at(deadline, under_way(&mut self.work)).await else { break };
                self.end_work(log, done).await;
            } else if self.retry.is_some() {
                break;
            } else if self.uncertain || self.is_behind() || self.stuck.is_some() || self.outbox {
                self.step().await;
            } else {
                self.take().await;
                return self.queue.is_empty() && self.stuck.is_none() && !self.is_behind();
            }
        }
        false
    }
}
