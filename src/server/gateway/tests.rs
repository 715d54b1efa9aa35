//! The deadline of a handler.

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
