//! `limit` for streams: a bare handler that sends the events of a broadcast channel.

use std::convert::Infallible;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::routing::{get, post};
use futures_util::stream::{Stream, unfold};
use serde_json::json;
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::error::Error;
use crate::fixture::DOCUMENT_URI;
use crate::limit::listen;
use crate::stream_client::EVENTS;
use crate::trigger::CHANGE_PATH;

/// How many changes a stream may lag behind before it misses some.
const BEHIND: usize = 64;

/// Serves streams and their changes for at most `seconds`.
pub(crate) async fn serve(port: u16, seconds: u64) -> Result<(), Error> {
    let router = Router::new().route(EVENTS, get(events)).route(CHANGE_PATH, post(publish));
    listen(port, router.with_state(Sender::new(BEHIND)), seconds).await
}

async fn publish(State(streams): State<Sender<Event>>) -> StatusCode {
    let params = json!({ "uri": DOCUMENT_URI });
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params });
    // Fails only without receivers.
    let _listeners = streams.send(Event::default().data(message.to_string()));
    StatusCode::ACCEPTED
}

async fn events(State(streams): State<Sender<Event>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(unfold(streams.subscribe(), next)).keep_alive(KeepAlive::default())
}

async fn next(mut events: Receiver<Event>) -> Option<(Result<Event, Infallible>, Receiver<Event>)> {
    loop {
        match events.recv().await {
            Ok(event) => return Some((Ok(event), events)),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}
