//! A client of the administration API.

use std::error::Error;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use reqwest::header::ETAG;
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode};
use rustls::CertificateError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::invocation::Invocation;
use super::output::Failure;
use super::runtime;
use super::target::Target;
use crate::app::{self, root_cause};
use crate::config::PublicUrl;
use crate::model::ids::Slug;

/// For a whole request: longer than a gateway takes.
const DEADLINE: Duration = Duration::from_mins(5);
/// For a whole stream.
const STREAM_DEADLINE: Duration = Duration::from_hours(24);
/// Bytes of an answer: more than a gateway sends.
const MAX_BYTES: usize = 2 << 30;

/// The administration API of a gateway, and a key.
pub(super) struct Admin {
    client: Client,
    url: PublicUrl,
    key: String,
    /// Sent as `X-Request-Id`.
    request_id: Option<String>,
}

/// A call of the administration API.
pub(super) struct Request {
    pub(super) method: Method,
    /// Below `/admin/v1`.
    pub(super) path: String,
    /// JSON, if any.
    pub(super) body: Option<Vec<u8>>,
    /// A precondition: the name and the value of a header.
    pub(super) condition: Option<(&'static str, String)>,
}

impl Request {
    /// A request without a body.
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: None, condition: None }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// The request with this body.
    pub(super) fn json(self, body: &impl Serialize) -> Result<Self, Failure> {
        Ok(Self { body: Some(serde_json::to_vec(body)?), ..self })
    }
}

/// A successful answer.
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    /// The `ETag`.
    pub(super) tag: Option<String>,
}

impl Answer {
    /// The revision that the `ETag` names.
    pub(super) fn revision(&self) -> &str {
        self.tag.as_deref().unwrap_or_default().trim_matches('"')
    }
}

/// A JSON-RPC response of an MCP endpoint.
#[derive(Deserialize)]
struct RpcResponse {
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
    data: Option<RpcErrorData>,
}

#[derive(Deserialize)]
struct RpcErrorData {
    /// The stable name of the error.
    code: String,
}

impl RpcError {
    /// The message with the name of the error, or with its number if it has none.
    fn text(self) -> String {
        let name = self.data.map_or_else(|| self.code.to_string(), |data| data.code);
        let remedy =
            if name == "forbidden" { "; call it with a key of the agent or of its owner" } else { "" };
        format!("{}{remedy} ({name})", self.message)
    }
}

/// A problem document (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

impl Admin {
    /// The gateway and the key that the flags, the environment or a context name.
    pub(super) fn of(invocation: &Invocation<'_>) -> Result<Self, Failure> {
        let Target { url, key, certificates } = Target::of(invocation)?;
        let client = client(&url, certificates).map_err(|error| unreachable(&url, &error))?;
        Ok(Self { client, url, key, request_id: None })
    }

    /// Sends this request id with all requests, by which their audit rows are recognized.
    pub(super) fn with_request_id(self, id: String) -> Self {
        Self { request_id: Some(id), ..self }
    }

    /// Sends a request and returns the body of the answer.
    pub(super) fn call(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        self.exchange(request).map(|answer| answer.body)
    }

    /// Sends a request.
    pub(super) fn exchange(&self, request: &Request) -> Result<Answer, Failure> {
        let (status, answer) = self.transmit(request)?;
        let creates = matches!(request.condition, Some(("if-none-match", _)));
        match status {
            StatusCode::PRECONDITION_FAILED if creates => Err(Failure::Gateway(
                "it exists already; use update to change it (already_exists)".to_owned(),
            )),
            status if status.is_success() => Ok(answer),
            // A body of one line is not as the user wrote it, so a column of it says nothing.
            status => Err(match self.refusal(status, &answer.body) {
                Failure::Gateway(text)
                    if !request.body.as_ref().is_some_and(|body| body.contains(&b'\n')) =>
                {
                    Failure::Gateway(without_column(&text))
                }
                other => other,
            }),
        }
    }

    /// Calls a method of an agent's MCP endpoint, and returns the result.
    pub(super) fn mcp(&self, agent: &Slug, method: &str, params: &Value) -> Result<Box<RawValue>, Failure> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let url = format!("{}/{agent}/mcp", self.url);
        let request =
            self.client.post(url).json(&body).header("accept", "application/json, text/event-stream");
        let (status, answer) = runtime::run(self.receive_whole(request))??;
        match serde_json::from_slice(&answer.body) {
            Ok(RpcResponse { result: Some(result), .. }) => Ok(result),
            Ok(RpcResponse { error: Some(error), .. }) => Err(Failure::Gateway(error.text())),
            _ => Err(self.refusal(status, &answer.body)),
        }
    }

    /// Reads what may not be there.
    pub(super) fn find(&self, path: &str) -> Result<Option<Answer>, Failure> {
        match self.transmit(&Request::get(path))? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, answer) if status.is_success() => Ok(Some(answer)),
            (status, answer) => Err(self.refusal(status, &answer.body)),
        }
    }

    /// Writes what was read with this tag, or what was not there without one. No other change in between is overwritten.
    pub(super) fn put(
        &self,
        path: String,
        body: &impl Serialize,
        tag: Option<String>,
    ) -> Result<Answer, Failure> {
        let condition = Some(tag.map_or(("if-none-match", "*".to_owned()), |tag| ("if-match", tag)));
        self.exchange(&Request { condition, ..Request::new(Method::PUT, path).json(body)? })
    }

    fn transmit(&self, request: &Request) -> Result<(StatusCode, Answer), Failure> {
        runtime::run(self.send(request))?
    }

    /// Sends a `GET` and passes the parts of the answer on as they arrive, until the callback breaks.
    pub(super) fn stream(
        &self,
        path: &str,
        media_type: &str,
        each: impl FnMut(&[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        runtime::run(self.receive(path, media_type, each))?
    }

    async fn receive(
        &self,
        path: &str,
        media_type: &str,
        mut each: impl FnMut(&[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let failed = |error| unreachable(&self.url, &error);
        let request = self.client.get(format!("{}/admin/v1{path}", self.url)).header("accept", media_type);
        let request = request.timeout(STREAM_DEADLINE).bearer_auth(&self.key);
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            let status = response.status();
            let body = whole(&mut response).await.map_err(failed)?;
            return Err(self.refusal(status, &body.unwrap_or_default()));
        }
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if each(&piece)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Failure {
        Failure::Gateway(match serde_json::from_slice(body) {
            // The key may be that of another gateway.
            Ok(Problem { code, detail }) if code == "unauthenticated" => {
                format!("{}: {detail} ({code})", self.url)
            }
            Ok(Problem { code, detail }) => format!("{detail} ({code})"),
            Err(_) => format!("{} answered {status}", self.url),
        })
    }

    async fn send(&self, request: &Request) -> Result<(StatusCode, Answer), Failure> {
        let Request { method, path, body, condition } = request;
        let mut request = self.client.request(method.clone(), format!("{}/admin/v1{path}", self.url));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        if let Some((name, value)) = condition {
            request = request.header(*name, value);
        }
        if let Some(id) = &self.request_id {
            request = request.header("x-request-id", id);
        }
        self.receive_whole(request).await
    }

    async fn receive_whole(&self, request: RequestBuilder) -> Result<(StatusCode, Answer), Failure> {
        let failed = |error| unreachable(&self.url, &error);
        let mut response = request.bearer_auth(&self.key).send().await.map_err(failed)?;
        let status = response.status();
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = whole(&mut response).await.map_err(failed)?;
        let body = body.ok_or_else(|| Failure::Gateway(format!("{}: the answer is too long", self.url)))?;
        Ok((status, Answer { body, tag }))
    }
}

/// A message without the position in a body of one line that its detail ends with.
fn without_column(text: &str) -> String {
    let Some((before, after)) = text.rsplit_once(" at line 1 column ") else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.is_empty() || rest.starts_with(" (") { format!("{before}{rest}") } else { text.to_owned() }
}

/// The body; `None` if it is too long.
async fn whole(response: &mut Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn client(url: &PublicUrl, certificates: Option<Vec<Certificate>>) -> reqwest::Result<Client> {
    let builder = app::client(url.as_str(), DEADLINE, false);
    match certificates {
        _ if url.as_str().starts_with("http:") => builder.no_proxy().build(),
        Some(certificates) => builder.tls_certs_only(certificates).build(),
        None => builder.build(),
    }
}

/// A failure with the innermost cause, and what to do if that is known.
fn unreachable(url: &PublicUrl, error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        return Failure::Gateway(format!("{url}: no answer within {} seconds", DEADLINE.as_secs()));
    }
    let cause = root_cause(error);
    let remedy = tls_error(cause).and_then(remedy).map(|remedy| format!("; {remedy}"));
    Failure::Gateway(format!("{url}: {cause}{}", remedy.unwrap_or_default()))
}

/// The error of a TLS handshake, which arrives as one of input and output, or as one of those in another.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    error.downcast_ref::<io::Error>()?.get_ref().and_then(|inner| tls_error(inner))
}

/// What to do about a failed TLS handshake.
fn remedy(error: &rustls::Error) -> Option<&'static str> {
    match error {
        // Another authority of the same name counts as one that is unknown.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Some("to trust its issuer, name the issuer's certificate with --cacert FILE"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("call the gateway by a name of its certificate"),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => Some("renew the certificate of the gateway, or correct the clock of this machine"),
        rustls::Error::InvalidMessage(_) => {
            Some("the port does not serve TLS: use a URL with http://, or another port")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_endpoints_are_shown_by_name() {
        let shown = |error: Value| serde_json::from_value::<RpcError>(error).unwrap().text();
        let error = json!({"code": -32602, "message": "m", "data": {"code": "invalid_params"}});
        assert_eq!(shown(error), "m (invalid_params)");
        assert_eq!(shown(json!({"code": -32602, "message": "m"})), "m (-32602)");
        let error = json!({"code": -31011, "message": "m", "data": {"code": "forbidden"}});
        assert_eq!(shown(error), "m; call it with a key of the agent or of its owner (forbidden)");
    }

    #[test]
    fn columns_of_generated_bodies_are_not_shown() {
        for (text, shown) in [
            ("unknown field `a` at line 1 column 16 (invalid_params)", "unknown field `a` (invalid_params)"),
            ("bad at line 1 column 16", "bad"),
            ("bad at line 1 column x", "bad at line 1 column x"),
            ("no such agent (not_found)", "no such agent (not_found)"),
        ] {
            assert_eq!(without_column(text), shown);
        }
    }
}
