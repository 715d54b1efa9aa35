//! Requests to replicas that may be down.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

/// The timeout of a request, before another replica is tried.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A client of all replicas.
#[derive(Debug, Clone)]
pub(crate) struct Http(reqwest::Client);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<i64>,
    pub(crate) session: Option<String>,
    body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http {
    pub(crate) fn new() -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        Self(reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap())
    }

    /// The head of an answer, its body unread; `None` without an answer.
    pub(crate) async fn open(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<reqwest::Response> {
        let mut request = self.0.request(method.parse().unwrap(), format!("http://127.0.0.1:{port}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        tokio::time::timeout(TIMEOUT, request.body(body.into()).send()).await.ok()?.ok()
    }

    pub(crate) async fn send(
        &self,
        port: u16,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let response = self.open(port, method, path, headers, body).await?;
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let etag = header("etag").and_then(|tag| tag.trim_matches('"').parse().ok());
        let session = header("mcp-session-id");
        let body = tokio::time::timeout(TIMEOUT, response.bytes()).await.ok()?.ok()?;
        Some(Answer { status, etag, session, body })
    }
}
