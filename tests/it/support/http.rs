//! An HTTP client that returns complete answers.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wait::DEADLINE;

/// Sent by a client that waits for `100 Continue` before it sends the body (RFC 9110, section 10.1.1).
pub(crate) const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[derive(Clone)]
pub(crate) struct Client {
    client: reqwest::Client,
    address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {} {}", self.status, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The revision of the `ETag`.
    pub(crate) fn revision(&self) -> i64 {
        self.header("etag").unwrap().trim_matches('"').parse().unwrap()
    }

    /// The answer without the headers that differ between equal answers.
    pub(crate) fn visible(&self) -> (StatusCode, Vec<(String, String)>, String) {
        let mut headers: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id"))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        headers.sort();
        (self.status, headers, self.text())
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        Self { client, address }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_send(method, path, headers, body).await.unwrap()
    }

    /// Like [`send`](Self::send), to a gateway that may stop before it answers.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> reqwest::Result<Answer> {
        let answering = async {
            let response = self.respond(method, path, headers, body).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok(Answer { status, headers, body: response.bytes().await? })
        };
        tokio::time::timeout(Duration::from_secs(60), answering).await.unwrap()
    }

    /// Sends a request; returns the head of the answer, its body unread.
    pub(crate) async fn respond(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> reqwest::Result<reqwest::Response> {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // A stream may last as long as its test.
        request.timeout(Duration::from_secs(600)).body(body.into()).send().await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Sends an administration call.
    pub(crate) async fn admin(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let bearer = format!("Bearer {key}");
        let path = format!("/admin/v1{path}");
        match body {
            Some(body) => {
                let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
                self.send(method, &path, &headers, body.to_string()).await
            }
            None => self.send(method, &path, &[("authorization", &bearer)], "").await,
        }
    }

    /// Posts a message to an agent's endpoint with an agent's key.
    pub(crate) async fn post(&self, agent: &str, key: &str, message: &Value) -> Answer {
        let headers = [("x-agent-api-key", key), ("content-type", "application/json")];
        self.send("POST", &format!("/{agent}/mcp"), &headers, message.to_string()).await
    }

    /// Starts a request with a body of `length` bytes and sends its first byte; returns once the gateway reads the body.
    pub(crate) async fn begin(&self, agent: &str, key: &str, length: usize) -> TcpStream {
        self.begin_request(&format!("POST /{agent}/mcp"), &format!("X-Agent-API-Key: {key}"), length).await
    }

    /// As [`begin`](Self::begin), with a method and path, and the header of a credential.
    pub(crate) async fn begin_request(&self, request: &str, credential: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\n{credential}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut go_on = [0; CONTINUE.len()];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut go_on)).await.unwrap().unwrap();
        assert_eq!(std::str::from_utf8(&go_on), Ok(CONTINUE));
        stream.write_all(b"{").await.unwrap();
        stream
    }

    /// Posts a message to an agent's endpoint with any credential.
    pub(crate) async fn post_bearer(&self, agent: &str, bearer: &str, message: &Value) -> Answer {
        let bearer = format!("Bearer {bearer}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.send("POST", &format!("/{agent}/mcp"), &headers, message.to_string()).await
    }

    /// Sends a legacy call without a session; returns the answer.
    pub(crate) async fn call(&self, agent: &str, key: &str, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(agent, key, &message).await.json()
    }

    /// The text of a resource with one content.
    pub(crate) async fn text(&self, agent: &str, key: &str, uri: &str) -> Option<String> {
        let answer = self.call(agent, key, "resources/read", json!({"uri": uri})).await;
        answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    }
}
