//! Servers that hang, trickle, lie and overflow.

use super::*;
use crate::pace::{Pace, assert_paced};

/// An answer that is sent in chunks without a length, up to its end.
fn until_close(head: &str, body: &[u8]) -> Vec<Step> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Send(bytes)]
}

#[tokio::test]
async fn bodies_are_decompressed() {
    let text = "a guide ".repeat(4000).into_bytes();
    for encoding in ["gzip", "br", "deflate"] {
        let (head, sent) = (format!("Content-Encoding: {encoding}\r\n"), encoded(encoding, &text).await);
        assert!(sent.len() < text.len() / 10, "{encoding}");
        let server = Server::start(move |_, _| answer("200 OK", &head, &sent)).await;
        assert_eq!(body(&plain(&server.url()), "a").await.as_deref(), Ok(&text[..]), "{encoding}");
    }
}

#[tokio::test]
async fn bodies_are_bounded_after_decompression() {
    let bomb = vec![0; 20_000_000];
    for encoding in ["gzip", "br", "deflate"] {
        let (head, sent) = (format!("Content-Encoding: {encoding}\r\n"), encoded(encoding, &bomb).await);
        assert!(sent.len() < 25_000, "{encoding}: {}", sent.len());
        let server = Server::start(move |_, _| answer("200 OK", &head, &sent)).await;
        let started = std::time::Instant::now();
        assert_eq!(body(&plain(&server.url()), "a").await, Err(FetchError::TooLarge), "{encoding}");
        assert!(started.elapsed() < Duration::from_secs(2), "{encoding}: {:?}", started.elapsed());
    }
    let exactly = vec![7; usize::try_from(LIMIT).unwrap()];
    let sent = encoded("gzip", &exactly).await;
    let server = Server::start(move |_, _| answer("200 OK", "Content-Encoding: gzip\r\n", &sent)).await;
    assert_eq!(body(&plain(&server.url()), "a").await.as_deref(), Ok(&exactly[..]));
}

#[tokio::test]
async fn bad_bodies_are_errors() {
    let gzip = encoded("gzip", b"a guide").await;
    let truncated = gzip[..gzip.len() - 4].to_vec();
    let followed = [&gzip[..], b"garbage"].concat();
    let twice = encoded("gzip", &gzip).await;
    let cases: Vec<(&str, Vec<Step>, FetchError)> = vec![
        ("truncated", answer("200 OK", "Content-Encoding: gzip\r\n", &truncated), FetchError::BadContent),
        ("followed", answer("200 OK", "Content-Encoding: gzip\r\n", &followed), FetchError::BadContent),
        ("not gzip", answer("200 OK", "Content-Encoding: gzip\r\n", b"a guide"), FetchError::BadContent),
        ("not br", answer("200 OK", "Content-Encoding: br\r\n", b"\xff\xff\xff\xff"), FetchError::BadContent),
        ("unknown", answer("200 OK", "Content-Encoding: zstd\r\n", b"a guide"), FetchError::BadContent),
        ("twice", answer("200 OK", "Content-Encoding: gzip, gzip\r\n", &twice), FetchError::BadContent),
        (
            "two headers",
            answer("200 OK", "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", &twice),
            FetchError::BadContent,
        ),
        ("too long", answer("200 OK", "", &vec![b'x'; 65_537]), FetchError::TooLarge),
        ("too long, no length", until_close("", &vec![b'x'; 65_537]), FetchError::TooLarge),
        ("10 GB stated", until_close("Content-Length: 10737418240\r\n", b"x"), FetchError::TooLarge),
        ("shorter than stated", until_close("Content-Length: 100\r\n", b"x"), FetchError::Unreachable),
        (
            "closes in a chunk",
            until_close("Transfer-Encoding: chunked\r\n", b"10\r\nx"),
            FetchError::Unreachable,
        ),
        (
            "two lengths",
            until_close("Content-Length: 1\r\nContent-Length: 2\r\n", b"xx"),
            FetchError::Unreachable,
        ),
        ("a negative length", until_close("Content-Length: -1\r\n", b"x"), FetchError::Unreachable),
        (
            "closes in a chunk of gzip",
            until_close("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", b"10\r\n\x1f\x8b"),
            FetchError::Unreachable,
        ),
        ("not HTTP", vec![Step::Send(b"SSH-2.0-OpenSSH\r\n".to_vec())], FetchError::Unreachable),
        ("nothing", vec![], FetchError::Unreachable),
        (
            "endless headers",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
                Step::Repeat(b"X-A: xxxxxxxxxxxxxxxx\r\n".repeat(50)),
            ],
            FetchError::Unreachable,
        ),
    ];
    for (case, steps, expected) in cases {
        let server = Server::start(move |_, _| steps.clone()).await;
        assert_eq!(body(&plain(&server.url()), "a").await, Err(expected), "{case}");
    }
}

#[tokio::test]
async fn a_body_longer_than_stated_ends_there() {
    let server =
        Server::start(|_, _| until_close("Content-Length: 2\r\n", b"okHTTP/1.1 200 OK\r\n\r\n")).await;
    assert_eq!(body(&plain(&server.url()), "a").await.as_deref(), Ok(&b"ok"[..]));
}

#[tokio::test]
async fn an_endless_body_is_read_to_the_limit_only() {
    let chunk = b"400\r\n".iter().copied().chain([b'x'; 1024]).chain(*b"\r\n").collect::<Vec<_>>();
    let server = Server::start(move |_, _| {
        vec![
            Step::Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()),
            Step::Repeat(chunk.clone()),
        ]
    })
    .await;
    assert_eq!(body(&plain(&server.url()), "a").await, Err(FetchError::TooLarge));
    closed(&server).await;
    // What the buffers of two sockets hold beyond the limit.
    assert!(server.sent() < 16_000_000, "{}", server.sent());
}

#[tokio::test]
async fn members_of_gzip_are_bounded_and_what_adds_nothing_is() {
    let [some, none] = [encoded("gzip", b"a guide").await, encoded("gzip", b"").await];
    let cases = [
        (some.repeat(1024), Ok(Bytes::from(b"a guide".repeat(1024)))),
        (some.repeat(1025), Err(FetchError::BadContent)),
        (none.repeat(1024), Ok(Bytes::new())),
        (none.repeat(1025), Err(FetchError::BadContent)),
        // Longer than what cannot be compressed.
        (none.repeat(100_000), Err(FetchError::TooLarge)),
    ];
    for (sent, expected) in cases {
        let server = Server::start(move |_, _| answer("200 OK", "Content-Encoding: gzip\r\n", &sent)).await;
        assert_eq!(body(&plain(&server.url()), "a").await, expected);
    }
    // Blocks that are empty, without an end.
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n\x78\x01".to_vec();
    let server = Server::start(move |_, _| {
        vec![Step::Send(head.clone()), Step::Repeat(b"\x00\x00\x00\xff\xff".repeat(10_000))]
    })
    .await;
    assert_eq!(body(&plain(&server.url()), "a").await, Err(FetchError::TooLarge));
    closed(&server).await;
}

#[tokio::test]
async fn received_and_decoded_bytes_take_their_time() {
    let bytes = vec![0; 60_000];
    let sent = encoded("gzip", &bytes).await;
    for (head, sent) in [("", bytes), ("Content-Encoding: gzip\r\n", sent)] {
        let server = Server::start(move |_, _| answer("200 OK", head, &sent)).await;
        let (source, location) = (plain(&server.url()), at("a", &[]));
        assert_paced(60_000, async |bounds| source.fetch(&location, None, bounds).await).await;
    }
}

#[tokio::test]
async fn nothing_is_received_until_what_was_is_paid() {
    let server = Server::start(|_, _| {
        vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), Step::Repeat(vec![b'x'; 64 * 1024])]
    })
    .await;
    let (source, location, pace) = (plain(&server.url()), at("a", &[]), Pace::new(1));
    let bounds = Bounds { bytes: u64::MAX, entries: 1, since: None, pace: pace.as_ref() };
    let mut fetch = std::pin::pin!(source.fetch(&location, None, bounds));
    let mut before = usize::MAX;
    // What the buffers of two sockets hold is sent, and then nothing more.
    while server.sent() != before || before == 0 {
        before = server.sent();
        assert!(timeout(Duration::from_millis(300), &mut fetch).await.is_err());
    }
    assert!(before < 16_000_000, "{before}");
}

#[tokio::test]
async fn an_abandoned_fetch_closes_its_connection() {
    let hangs = vec![Step::Pause(Duration::from_mins(1))];
    let head = Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n".to_vec());
    let mut trickles = vec![head];
    for _ in 0..100 {
        trickles.extend([Step::Send(b"x".to_vec()), Step::Pause(Duration::from_secs(1))]);
    }
    for (case, steps) in [("hangs", hangs), ("trickles", trickles)] {
        let server = Server::start(move |_, _| steps.clone()).await;
        let source = plain(&server.url());
        let location = at("a", &[]);
        let fetch =
            source.fetch(&location, None, Bounds { bytes: LIMIT, entries: 1, since: None, pace: None });
        assert!(timeout(Duration::from_millis(200), fetch).await.is_err(), "{case}");
        assert_eq!(server.requests().len(), 1, "{case}");
        closed(&server).await;
    }
}

/// Waits until the server's connections are closed.
async fn closed(server: &Server) {
    let wait = async {
        while server.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), wait).await.unwrap();
}
