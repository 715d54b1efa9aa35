//! Bodies: their depth, their reading within limits, and the action when one is taken.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame};

use super::{Body, BodyPace, is_too_deep, read};
use crate::model::fault::Fault;

#[tokio::test]
async fn action_of_a_body_runs_when_its_first_frame_is_taken() {
    let taken = Arc::new(AtomicUsize::new(0));
    let watched = || {
        let taken = Arc::clone(&taken);
        Body::from(Bytes::from_static(b"abc")).when_taken(move || _ = taken.fetch_add(1, Ordering::Relaxed))
    };
    let body = watched();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    drop(body);
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    assert_eq!(watched().collect().await.unwrap().to_bytes(), "abc");
    assert_eq!(taken.load(Ordering::Relaxed), 1);
}

#[test]
fn depth_is_counted_outside_strings() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(!is_too_deep(nested(64).as_bytes()));
    assert!(is_too_deep(nested(65).as_bytes()));
    assert!(is_too_deep(nested(1_000).as_bytes()));
    assert!(!is_too_deep(format!("\"{}\"", "[".repeat(100)).as_bytes()));
    assert!(!is_too_deep(format!("\"\\\"{}\"", "{".repeat(100)).as_bytes()));
    assert!(!is_too_deep("[]".repeat(100).as_bytes()));
}

const PACE: BodyPace = BodyPace { window: Duration::from_secs(2), bytes_per_second: 1_000 };

/// Reads a body, and records the reservation.
async fn receive(body: impl HttpBody<Data = Bytes>, limit: usize) -> (Result<usize, Fault>, Option<usize>) {
    let mut reserved = None;
    let mut body = std::pin::pin!(body);
    let received = read(&mut body, limit, PACE, |bytes| {
        reserved = Some(bytes);
        Ok(())
    });
    (received.await.map(|received| received.bytes.len()), reserved)
}

/// Frames of these lengths, each after a delay in milliseconds.
fn pieces(of: &'static [(u64, usize)]) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::iter(of).then(async |&(millis, length)| {
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        Ok(Frame::data(Bytes::from(vec![b'x'; length])))
    })
}

#[tokio::test]
async fn declared_bytes_are_reserved_and_the_limit_where_none_are_declared() {
    let full = |length: usize| Full::new(Bytes::from(vec![b'x'; length]));
    let large = 100 * 1024;
    assert_eq!(receive(full(3), large).await, (Ok(3), None), "it arrived with its head");
    assert_eq!(receive(full(large), large).await, (Ok(large), Some(large)));
    assert_eq!(receive(full(large + 1), large).await, (Err(Fault::PayloadTooLarge(large)), None));
    let chunked = || StreamBody::new(pieces(&[(0, 2), (1, 2)]));
    assert_eq!(receive(chunked(), large).await, (Ok(4), Some(large)));
    assert_eq!(receive(chunked(), 3).await, (Err(Fault::PayloadTooLarge(3)), Some(3)));
}

#[tokio::test]
async fn a_body_slower_than_the_pace_is_refused() {
    const NEVER: u64 = 600_000;
    let read = async |of: &'static [(u64, usize)]| receive(StreamBody::new(pieces(of)), 100_000).await.0;
    let (stalled, trickling, stalled_later, steady, short) = tokio::join!(
        read(&[(0, 1), (NEVER, 1)]),
        read(&[(500, 10), (500, 10), (500, 10), (NEVER, 10)]),
        read(&[(100, 90_000), (NEVER, 1)]),
        read(&[(700, 3_000), (700, 3_000), (700, 3_000), (700, 3_000), (700, 3_000)]),
        read(&[(500, 10)]),
    );
    let slow = Err(Fault::SlowBody(1_000));
    assert_eq!([stalled, trickling, stalled_later], [slow.clone(), slow.clone(), slow]);
    assert_eq!([steady, short], [Ok(15_000), Ok(10)]);
}
