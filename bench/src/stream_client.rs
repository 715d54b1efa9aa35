//! Opens event streams, in the way of each kind of server.

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use std::time::Duration;

use crate::cases::{self, Era};
use crate::error::{Error, excerpt};
use crate::fixture::{DOCUMENT_URI, WATCHED};
use crate::http::{self, Connection};

/// The timeout for opening one stream.
const OPEN: Duration = Duration::from_secs(30);
/// The path of the events of `limit`.
pub(crate) const EVENTS: &str = "/events";

/// Opens streams at one server that receive changes of the watched document.
#[derive(Clone)]
pub(crate) struct StreamClient {
    pub(crate) server: &'static str,
    pub(crate) port: u16,
    /// The agent key that is presented.
    pub(crate) key: String,
    /// The era of the streams; `None` for a server that has only one kind of stream.
    pub(crate) era: Option<Era>,
}

impl StreamClient {
    /// Opens a stream. Every change after its return is sent on it.
    pub(crate) async fn open(&self) -> Result<TcpStream, Error> {
        let opening = async {
            let mut connection = Connection::open(self.port).await?;
            let request = match self.era {
                None => http::request("GET", EVENTS, self.port, &[("Accept", "text/event-stream")], None),
                Some(Era::Modern) => self.listen(),
                Some(Era::Legacy) => self.subscribe(&mut connection).await?,
            };
            let (status, stream) = connection.begin(&request).await?;
            if status == 200 { Ok(stream) } else { Err(Error::NoStream { server: self.server, status }) }
        };
        let late = Error::TimedOut { server: self.server, seconds: OPEN.as_secs() };
        timeout(OPEN, opening).await.unwrap_or(Err(late))
    }

    fn listen(&self) -> Vec<u8> {
        let method = "subscriptions/listen";
        let params = json!({
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": Era::Modern.version(),
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": { "resourceSubscriptions": [DOCUMENT_URI] },
        });
        self.post(Era::Modern, &[("Mcp-Method", method)], &message(Some(1), method, &params))
    }

    /// Opens a session with a subscription; returns the request for its stream.
    async fn subscribe(&self, connection: &mut Connection) -> Result<Vec<u8>, Error> {
        let client = json!({ "name": "bench", "version": "1" });
        let version = Era::Legacy.version();
        let initialize = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let initialize = self.post(Era::Legacy, &[], &message(Some(1), "initialize", &initialize));
        let answer = connection.exchange(&initialize).await?;
        let opened = answer.header("mcp-session-id").map(str::to_owned);
        let session = opened.ok_or(Error::NoStream { server: self.server, status: answer.status })?;
        let within = [("Mcp-Session-Id", session.as_str())];
        let subject = json!({ "uri": DOCUMENT_URI });
        for (id, method, params) in
            [(None, "notifications/initialized", json!({})), (Some(2), "resources/subscribe", subject)]
        {
            let request = self.post(Era::Legacy, &within, &message(id, method, &params));
            let answer = connection.exchange(&request).await?;
            if !matches!(answer.status, 200 | 202) || excerpt(answer.body).contains("\"error\"") {
                return Err(Error::NoStream { server: self.server, status: answer.status });
            }
        }
        let headers = [&self.headers(Era::Legacy, "text/event-stream"), within.as_slice()].concat();
        Ok(http::request("GET", &cases::path(WATCHED), self.port, &headers, None))
    }

    fn headers(&self, era: Era, accept: &'static str) -> [(&str, &str); 3] {
        [("Accept", accept), ("MCP-Protocol-Version", era.version()), ("X-Agent-API-Key", &self.key)]
    }

    fn post(&self, era: Era, more: &[(&str, &str)], message: &Value) -> Vec<u8> {
        let headers = [&self.headers(era, "application/json, text/event-stream"), more].concat();
        http::request("POST", &cases::path(WATCHED), self.port, &headers, Some(message))
    }
}

fn message(id: Option<u32>, method: &str, params: &Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if let Some(id) = id {
        message["id"] = id.into();
    }
    message
}
