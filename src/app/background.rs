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
    /// Spawns a task, which ends soon after the token is cancelled.
    pub(super) fn spawn<F>(&self, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task(self.stop.clone()));
    }

    /// Spawns a task that can be dropped at any time.
    pub(super) fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(|stop| async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Stops the tasks, and waits until they have ended.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
