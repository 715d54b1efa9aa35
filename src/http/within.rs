//! Timeouts.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// The output of a future, or `None` after the timeout. Polls once before arming a timer: nearly all are ready.
pub async fn within<T>(time: Duration, mut answering: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context)));
    match at_once.await {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => tokio::time::timeout(time, answering).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::time::Duration;

    use super::within;

    #[tokio::test]
    async fn only_a_result_within_the_deadline_is_returned() {
        let (none, soon) = (Duration::ZERO, Duration::from_millis(10));
        let later = async {
            tokio::time::sleep(soon).await;
            2
        };
        assert_eq!(within(none, pin!(ready(1))).await, Some(1));
        assert_eq!(within(Duration::from_mins(1), pin!(later)).await, Some(2));
        assert_eq!(within(soon, pin!(pending::<()>())).await, None);
    }
}
