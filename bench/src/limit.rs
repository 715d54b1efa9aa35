//! `limit`: a bare handler, the minimum cost of an HTTP server in Rust. It reads a body and answers fixed bytes, or a copy
//! of them of its own for each of many keys.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::error::Error;

/// Answers every `POST` to `route` with the bytes of the file `answer`, for at most `seconds`.
pub(crate) async fn serve(port: u16, route: &str, answer: &Path, seconds: u64) -> Result<(), Error> {
    let answer = Bytes::from(read(answer)?);
    let handler = move |body: Bytes| {
        drop(body);
        std::future::ready(([(CONTENT_TYPE, "application/json")], answer.clone()))
    };
    listen(port, Router::new().route(route, post(handler)), seconds).await
}

/// As [`serve`], to requests with one of the keys that are the lines of a file: each has a copy of the answer.
pub(crate) async fn serve_keys(
    port: u16,
    route: &str,
    (answer, keys): (&Path, &Path),
    seconds: u64,
) -> Result<(), Error> {
    let answer = read(answer)?;
    let keys = read(keys)?;
    let lines = keys.split(|byte| *byte == b'\n');
    let copies = lines.map(|key| (key.to_vec(), Bytes::copy_from_slice(&answer)));
    let answers: &HashMap<Vec<u8>, Bytes> = Box::leak(Box::new(copies.collect()));
    let handler = move |headers: HeaderMap, body: Bytes| {
        drop(body);
        let found = headers.get("X-Agent-API-Key").and_then(|key| answers.get(key.as_bytes()));
        let answer = found.map(|answer| ([(CONTENT_TYPE, "application/json")], answer.clone()));
        std::future::ready(answer.ok_or(StatusCode::UNAUTHORIZED))
    };
    listen(port, Router::new().route(route, post(handler)), seconds).await
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::io(format!("read {}", path.display())))
}

/// Serves `router` on `port` of the loopback address for at most `seconds`.
pub(crate) async fn listen(port: u16, router: Router, seconds: u64) -> Result<(), Error> {
    let doing = || Error::io(format!("serve on 127.0.0.1:{port}"));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(doing())?;
    let listener = listener.tap_io(|stream| {
        // Affects latency only, so failure is ignored.
        let _best_effort = stream.set_nodelay(true);
    });
    let served = timeout(Duration::from_secs(seconds), axum::serve(listener, router)).await;
    served.unwrap_or(Ok(())).map_err(doing())
}
