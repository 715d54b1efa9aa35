//! The background tasks of a gateway.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The background tasks of a gateway, which end together.
#[derive(Debug, Default)]
pub(super) struct Background {
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Background {
    /// Stops the tasks, and waits until they have ended.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
