//! Server-sent events (SSE) of the HTML standard: each event has JSON on one line.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};

use crate::http::body::Body;
use crate::model::system::Random;

/// The keep-alive comment of an idle stream, by which both ends detect a lost connection. A line without an empty line after
/// it, which ends an event: parsers that remember the last id report one without data (httpx-sse in Python SDKs before 1.23).
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n");

/// The bounds of the reconnection time.
const SHORTEST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(3);

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Appends an event. `data` must be on one line.
pub fn event(out: &mut Vec<u8>, id: Option<&str>, data: &[&[u8]]) {
    append_id(out, id);
    out.extend_from_slice(b"data: ");
    for piece in data {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(b"\n\n");
}

fn append_id(out: &mut Vec<u8>, id: Option<&str>) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
}

/// Appends the reconnection time (`retry`), which differs between streams: those that end together, for example at a
/// shutdown, are not opened again together.
pub fn retry(out: &mut Vec<u8>, random: &dyn Random) {
    append_retry(out, random);
    out.push(b'\n');
}

/// Appends an event without data that carries only the resume position and the reconnection time.
pub fn priming(out: &mut Vec<u8>, id: Option<&str>, random: &dyn Random) {
    append_id(out, id);
    append_retry(out, random);
    out.extend_from_slice(b"data: \n\n");
}

fn append_retry(out: &mut Vec<u8>, random: &dyn Random) {
    let millis = random.duration(SHORTEST_RETRY, LONGEST_RETRY).as_millis();
    out.extend_from_slice(format!("retry: {millis}\n").as_bytes());
}

/// The answer with an event stream, with headers that disable buffering by proxies.
pub fn response(events: Pin<Box<dyn Stream<Item = Bytes> + Send>>) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use super::{event, priming, retry};
    use crate::model::system::{Random, RandomError};

    struct Fixed(u8);

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
            bytes.fill(self.0);
            Ok(())
        }
    }

    #[test]
    fn events_are_written_as_the_standard_has_them() {
        let mut out = Vec::new();
        event(&mut out, Some("1-2-3"), &[b"{\"a\":", b"1}"]);
        event(&mut out, None, &[b"{}"]);
        priming(&mut out, Some("1-0-0"), &Fixed(0));
        retry(&mut out, &Fixed(255));
        let expected =
            "id: 1-2-3\ndata: {\"a\":1}\n\ndata: {}\n\nid: 1-0-0\nretry: 500\ndata: \n\nretry: 3000\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
