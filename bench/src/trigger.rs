//! What makes a server tell its streams of a change.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use tokio::time::timeout;

use crate::error::{Error, excerpt};
use crate::fixture::{DOCUMENT_URI, MIME_TYPE, WATCHED};
use crate::http::{self, Connection};

const PATIENCE: Duration = Duration::from_secs(30);
/// Where the comparison servers are told to tell.
pub(crate) const TELL: &str = "/tell";

/// A connection on which changes are made.
pub(crate) struct Trigger {
    server: &'static str,
    port: u16,
    connection: Connection,
    /// The header of an operator, at the gateway.
    authorization: Option<String>,
    pulled: u64,
}

impl Trigger {
    /// Connects to a server: to the gateway as an operator, to the others as anybody.
    pub(crate) async fn open(
        server: &'static str,
        port: u16,
        authorization: Option<String>,
    ) -> Result<Self, Error> {
        Ok(Self { server, port, connection: Connection::open(port).await?, authorization, pulled: 0 })
    }

    /// Makes a change; answers when it was sent, and when it was answered.
    pub(crate) async fn pull(&mut self) -> Result<(Instant, Instant), Error> {
        self.pulled += 1;
        let request = self.request();
        let sent = Instant::now();
        let answer = timeout(PATIENCE, self.connection.exchange(&request)).await;
        let late = |_| Error::TimedOut { server: self.server, seconds: PATIENCE.as_secs() };
        let answer = answer.map_err(late)??;
        let answered = Instant::now();
        if !(200..300).contains(&answer.status) {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::NotTold { server: self.server, status, body });
        }
        Ok((sent, answered))
    }

    fn request(&self) -> Vec<u8> {
        let Some(authorization) = &self.authorization else {
            return http::request("POST", TELL, self.port, &[], Some(&json!({})));
        };
        let uri = utf8_percent_encode(DOCUMENT_URI, NON_ALPHANUMERIC);
        let target = format!("/admin/v1/agents/{WATCHED}/resources?uri={uri}");
        // Numbered from the clock's side too: a trigger made later writes nothing that was there before.
        let text = format!("{} at {:?}", self.pulled, Instant::now());
        let body = json!({ "name": "guide", "mimeType": MIME_TYPE, "contents": [{ "text": text }] });
        http::request("PUT", &target, self.port, &[("Authorization", authorization)], Some(&body))
    }
}
