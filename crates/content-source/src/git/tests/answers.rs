//! Servers whose answers are errors, or do not end.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{Site, text};
use crate::error::FetchError;

/// What a fetch ends with if a server answers with this status and endless capabilities.
async fn flooded_with(status: &'static str) -> Result<String, FetchError> {
    let site = Site::new(1 << 30);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a.git", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.read_u8().await.ok();
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\n\
                    content-type: application/x-git-upload-pack-advertisement\r\n\r\n\
                    001e# service=git-upload-pack\n0000000eversion 2\n"
                );
                stream.write_all(head.as_bytes()).await.ok();
                let capability = b"0010some-thing=x".repeat(4096);
                while stream.write_all(&capability).await.is_ok() {}
            });
        }
    });
    let source = site.connect(&json!({"url": url, "allowNetworks": ["127.0.0.0/8"]}), &json!({})).unwrap();
    let fetched = timeout(Duration::from_mins(1), text(&source, "README.md", None)).await.unwrap();
    task.abort();
    fetched
}

#[tokio::test]
async fn endless_answers_are_not_collected() {
    assert_eq!(flooded_with("200 OK").await, Err(FetchError::TooLarge));
}

#[tokio::test]
async fn status_says_whether_the_request_or_the_server_is_at_fault() {
    for (status, expected) in [
        ("400 Bad Request", FetchError::Rejected),
        ("403 Forbidden", FetchError::Denied),
        ("404 Not Found", FetchError::NotFound),
        ("429 Too Many Requests", FetchError::RateLimited { retry_after: None }),
        ("503 Service Unavailable", FetchError::Status { retry_after: None }),
    ] {
        assert_eq!(flooded_with(status).await, Err(expected), "{status}");
    }
}
