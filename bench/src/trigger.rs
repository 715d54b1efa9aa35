//! Makes changes that a server announces on its streams.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use tokio::time::timeout;

use crate::error::{Error, excerpt};
use crate::fixture::{DOCUMENT_URI, MIME_TYPE, WATCHED};
use crate::http::{self, Connection};

const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The path of the comparison servers at which a `POST` makes a change.
pub(crate) const CHANGE_PATH: &str = "/publish";

/// A connection on which changes are made.
pub(crate) struct Trigger {
    server: &'static str,
    port: u16,
    connection: Connection,
    /// The operator's `Authorization` header, for the gateway.
    authorization: Option<String>,
    fired: u64,
}

impl Trigger {
    /// Connects to a server: to the gateway as the operator, to the others without a credential.
    pub(crate) async fn open(
        server: &'static str,
        port: u16,
        authorization: Option<String>,
    ) -> Result<Self, Error> {
        Ok(Self { server, port, connection: Connection::open(port).await?, authorization, fired: 0 })
    }

    /// Makes a change; returns when it was sent and when it was answered.
    pub(crate) async fn fire(&mut self) -> Result<(Instant, Instant), Error> {
        self.fired += 1;
        let request = self.request();
        let sent = Instant::now();
        let answer = timeout(CHANGE_TIMEOUT, self.connection.exchange(&request)).await;
        let late = |_| Error::TimedOut { server: self.server, seconds: CHANGE_TIMEOUT.as_secs() };
        let answer = answer.map_err(late)??;
        let answered = Instant::now();
        if !(200..300).contains(&answer.status) {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::ChangeRefused { server: self.server, status, body });
        }
        Ok((sent, answered))
    }

    fn request(&self) -> Vec<u8> {
        let Some(authorization) = &self.authorization else {
            return http::request("POST", CHANGE_PATH, self.port, &[], Some(&json!({})));
        };
        let uri = utf8_percent_encode(DOCUMENT_URI, NON_ALPHANUMERIC);
        let target = format!("/admin/v1/agents/{WATCHED}/resources?uri={uri}");
        // With the time, so that another trigger never writes the same contents.
        let text = format!("{} at {:?}", self.fired, Instant::now());
        let body = json!({ "name": "guide", "mimeType": MIME_TYPE, "contents": [{ "text": text }] });
        http::request("PUT", &target, self.port, &[("Authorization", authorization)], Some(&body))
    }
}
