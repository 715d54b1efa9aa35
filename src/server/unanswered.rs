//! Requests whose client disconnects before the answer: they are completed in tasks of their own. What was begun is charged
//! and recorded, and no statement is abandoned in the middle, which would cost its connection to the database. Such a request
//! keeps its permits, so that the limits on requests in flight bound these tasks too, and the deadline of requests ends it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// The answer to a request, as its connection awaits it. A request that is answered while its client is there needs no task.
pub(super) struct Answering<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` once it is answered.
    answer: Option<Pin<Box<F>>>,
    tasks: TaskTracker,
}

impl<F> Answering<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// Boxes the answer: a connection reserves space for it for as long as it is open, which an idle connection and an open
    /// stream do not need.
    pub(super) fn new(answer: F, tasks: TaskTracker) -> Self {
        Self { answer: Some(Box::pin(answer)), tasks }
    }
}

impl<F> Future for Answering<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = ready!(answer.as_mut().poll(context));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<F> Drop for Answering<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.tasks.spawn_on(answer, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::{Answering, TaskTracker};

    #[tokio::test]
    async fn request_is_completed_after_its_client_disconnects() {
        let (tasks, may_end, ended) =
            (TaskTracker::new(), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (waiting, end) = (Arc::clone(&may_end), Arc::clone(&ended));
        let answer = async move {
            waiting.notified().await;
            end.store(true, Ordering::SeqCst);
        };
        drop(Answering::new(answer, tasks.clone()));
        assert_eq!(tasks.len(), 1);
        may_end.notify_one();
        tasks.close();
        tasks.wait().await;
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn answered_request_leaves_no_task() {
        let tasks = TaskTracker::new();
        Answering::new(async {}, tasks.clone()).await;
        assert!(tasks.is_empty());
    }
}
