//! `limit`: a bare handler, the minimum cost of an HTTP server in Rust. It reads a body and answers fixed bytes.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::error::Error;

/// Answers every `POST` to `route` with the bytes of the file `answer`, for at most `seconds`.
pub(crate) async fn serve(port: u16, route: &str, answer: &Path, seconds: u64) -> Result<(), Error> {
    let answer = std::fs::read(answer).map_err(Error::io(format!("read {}", answer.display())))?;
    let answer = Bytes::from(answer);
    let handler = move |body: Bytes| {
        drop(body);
        std::future::ready(([(CONTENT_TYPE, "application/json")], answer.clone()))
    };
    listen(port, Router::new().route(route, post(handler)), seconds).await
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
