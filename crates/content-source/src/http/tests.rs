//! The source of HTTP APIs, against a server of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use self::server::{Server, Step, answer, encoded};
use super::*;
use crate::kind::{Kind, connect};
use crate::location::Segment;
use crate::source::Tree;

mod bodies;
mod redirects;
mod server;
mod settings;

const LIMIT: u64 = 64 * 1024;

/// A connection to `url` with more settings and secret headers. Names that end in `.test` are this machine.
fn connection(url: &str, more: &Value, secrets: &Value) -> Arc<dyn Source> {
    let mut settings = json!({"baseUrl": url, "allowNetworks": ["127.0.0.0/8"]});
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    connect(Kind::Http, &settings, secrets.as_object().unwrap(), &server::context()).unwrap()
}

fn plain(url: &str) -> Arc<dyn Source> {
    connection(url, &json!({}), &json!({}))
}

fn at(path: &str, query: &[(&str, &str)]) -> Location {
    let segments = path.split('/').filter(|text| !text.is_empty());
    let path = Path {
        segments: segments.map(|text| Segment::new(text).unwrap()).collect(),
        is_directory: path.is_empty() || path.ends_with('/'),
    };
    let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Location::Path { path, query, reference: None }
}

/// Fetches a path within ten seconds.
async fn fetch(
    source: &Arc<dyn Source>,
    path: &str,
    known: Option<&Validator>,
) -> Result<Fetched, FetchError> {
    let location = at(path, &[]);
    let bounds = Bounds { bytes: LIMIT, entries: 1, since: None, pace: None };
    timeout(Duration::from_secs(10), source.fetch(&location, known, bounds)).await.unwrap()
}

/// The bytes of a path.
async fn body(source: &Arc<dyn Source>, path: &str) -> Result<Bytes, FetchError> {
    match fetch(source, path, None).await? {
        Fetched::Contents { contents, .. } => Ok(contents[0].bytes.clone()),
        Fetched::Unchanged => panic!("nothing was known"),
    }
}

#[tokio::test]
async fn a_path_is_appended_and_percent_encoded() {
    let server = Server::start(|_, _| answer("200 OK", "", b"x")).await;
    let cases = [
        ("", "", &[][..], "/"),
        ("/", "", &[], "/"),
        ("/api", "", &[], "/api"),
        ("/api/", "", &[], "/api/"),
        ("/api/", "v1/x", &[], "/api/v1/x"),
        ("/api", "v1/", &[], "/api/v1/"),
        ("/a%2Fb/../c", "x", &[], "/c/x"),
        ("", "são paulo", &[], "/s%C3%A3o%20paulo"),
        ("", "..;/a?b#c%2e", &[], "/..%3B/a%3Fb%23c%252e"),
        ("/api", "%2e%2e/%2E./..%2f", &[], "/api/%252e%252e/%252E./..%252f"),
        ("/api", "http:/@evil.test:80", &[], "/api/http%3A/%40evil.test%3A80"),
        ("/api", "a\r\nHost: evil", &[], "/api/a%0D%0AHost%3A%20evil"),
        ("/api", "a\tb", &[], "/api/a%09b"),
        ("", "x", &[("units", "metric"), ("q", "a&b=c d+é#")], "/x?units=metric&q=a%26b%3Dc%20d%2B%C3%A9%23"),
        ("/api", "", &[("q", "")], "/api?q="),
    ];
    for (base, path, query, expected) in cases {
        let source = plain(&format!("http://api.test:{}{base}", server.port));
        source
            .fetch(&at(path, query), None, Bounds { bytes: LIMIT, entries: 1, since: None, pace: None })
            .await
            .unwrap();
        assert_eq!(server.targets().pop().as_deref(), Some(expected), "{base} {path}");
    }
}

#[tokio::test]
async fn an_answer_is_content_with_its_type_and_time() {
    let head = "Content-Type: text/plain; charset=utf-8\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                ETag: \"1\"\r\n";
    let server = Server::start(move |_, _| answer("200 OK", head, b"\xffhi")).await;
    let content = Content {
        name: None,
        mime_type: Some("text/plain; charset=utf-8".into()),
        modified: Some(time::macros::datetime!(1994-11-06 08:49:37 UTC)),
        bytes: Bytes::from_static(b"\xffhi"),
    };
    let validator = Some(Validator(b"\"1\"\nSun, 06 Nov 1994 08:49:37 GMT".to_vec()));
    let fetched = fetch(&plain(&server.url()), "", None).await;
    assert_eq!(fetched, Ok(Fetched::Contents { contents: vec![content], validator }));

    let head = "Last-Modified: Fri, 31 Dec 9999 23:59:59 -0100\r\n";
    let server = Server::start(move |_, _| answer("200 OK", head, b"hi")).await;
    let fetched = fetch(&plain(&server.url()), "", None).await;
    let Ok(Fetched::Contents { contents, validator: None }) = fetched else { panic!("{fetched:?}") };
    assert_eq!(contents[0].modified, None, "in UTC it has no representation");
}

#[tokio::test]
async fn headers_and_secrets_are_sent() {
    let server = Server::start(|_, _| answer("200 OK", "", b"x")).await;
    let settings = json!({"headers": {"X-Team": "maps", "X-Key": "replaced"}});
    let source = connection(&server.url(), &settings, &json!({"headers": {"x-key": "secret"}}));
    fetch(&source, "a", None).await.unwrap();
    let expected = [
        ("accept", "*/*"),
        ("accept-encoding", "gzip, br, deflate"),
        ("host", &format!("api.test:{}", server.port)),
        ("user-agent", "content-source/0.1.0"),
        ("x-key", "secret"),
        ("x-team", "maps"),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(server.requests()[0].headers, expected);
    assert_eq!(format!("{source:?}"), "Http { .. }");
}

#[tokio::test]
async fn content_is_revalidated() {
    let known = "Sun, 06 Nov 1994 08:49:37 GMT";
    let cases = [
        ("ETag: W/\"7\"\r\n".to_owned(), "if-none-match", Some("W/\"7\"")),
        (format!("Last-Modified: {known}\r\n"), "if-modified-since", Some(known)),
        (
            format!("Last-Modified: {known}\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\n"),
            "if-modified-since",
            Some(known),
        ),
        // Changed in the second of the answer.
        (format!("Last-Modified: {known}\r\nDate: {known}\r\n"), "if-modified-since", None),
        (format!("ETag: \"{}\"\r\n", "x".repeat(1000)), "if-none-match", None),
        (String::new(), "if-none-match", None),
    ];
    for (head, condition, expected) in cases {
        let server = Server::start({
            let head = head.clone();
            move |request, _| {
                let conditional = request.headers.keys().any(|name| name.starts_with("if-"));
                if conditional { answer("304 Not Modified", "", b"") } else { answer("200 OK", &head, b"x") }
            }
        })
        .await;
        let source = plain(&server.url());
        let Ok(Fetched::Contents { validator, .. }) = fetch(&source, "a", None).await else {
            panic!("{head}")
        };
        assert_eq!(validator.is_some(), expected.is_some(), "{head}");
        let again = fetch(&source, "a", validator.as_ref()).await;
        assert_eq!(again == Ok(Fetched::Unchanged), expected.is_some(), "{head}");
        let sent = &server.requests()[1].headers;
        assert_eq!(sent.get(condition).map(String::as_str), expected, "{head}");
    }
}

#[tokio::test]
async fn a_status_is_an_error() {
    let failed = |retry_after| FetchError::Status { retry_after };
    let limited = |retry_after| FetchError::RateLimited { retry_after };
    let dates = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\n";
    let past = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:48:37 GMT\r\n";
    let cases = [
        ("404 Not Found", "", FetchError::NotFound),
        ("410 Gone", "", FetchError::NotFound),
        ("401 Unauthorized", "", FetchError::Denied),
        ("403 Forbidden", "", FetchError::Denied),
        ("206 Partial Content", "", FetchError::BadContent),
        ("300 Multiple Choices", "", FetchError::Rejected),
        // Nothing was asked for conditionally.
        ("304 Not Modified", "", FetchError::Rejected),
        ("302 Found", "", FetchError::Rejected),
        ("400 Bad Request", "", FetchError::Rejected),
        ("422 Unprocessable Content", "Retry-After: 120\r\n", FetchError::Rejected),
        ("408 Request Timeout", "", failed(None)),
        ("425 Too Early", "", failed(None)),
        ("429 Too Many Requests", "Retry-After: 120\r\n", limited(Some(120))),
        ("429 Too Many Requests", "Retry-After: soon\r\n", limited(None)),
        ("429 Too Many Requests", "Retry-After: -1\r\n", limited(None)),
        ("503 Service Unavailable", dates, failed(Some(60))),
        ("503 Service Unavailable", past, failed(Some(0))),
        ("500 Internal Server Error", "", failed(None)),
    ];
    for (status, head, expected) in cases {
        let server = Server::start(move |_, _| answer(status, head, b"x")).await;
        assert_eq!(body(&plain(&server.url()), "a").await, Err(expected), "{status} {head}");
    }
}

#[tokio::test]
async fn an_http_api_has_no_trees_statements_or_references() {
    let source = plain("http://api.test");
    let tree = Tree { path: Path::default(), reference: None };
    let scanned: Vec<_> = source.scan(&tree, &|_| true, None, None).collect().await;
    assert_eq!(scanned, [Err(FetchError::NotAllowed)]);
    assert!(source.watch(&tree).is_none());
    let bounds = Bounds { bytes: 1, entries: 1, since: None, pace: None };
    let statement = Location::Statement {
        statement: "select 1".into(),
        parameters: BTreeMap::new(),
        format: crate::location::Format::Json,
    };
    let referred =
        Location::Path { path: Path::default(), query: Vec::new(), reference: Some("main".into()) };
    for location in [statement, referred] {
        assert_eq!(source.fetch(&location, None, bounds).await, Err(FetchError::NotAllowed));
    }
}
