//! Sends encoded requests to a collector: as the body of an HTTP request, or as a unary call of gRPC.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::redirect::Policy;
use reqwest::{Body, Client};
use tokio::time::{Instant, sleep};

use crate::config::{Config, Protocol};

/// The maximum length of a collector's answer.
const ANSWER_BYTES: usize = 64 * 1024;
/// The maximum length of a collector's message that is reported, in characters.
const MESSAGE_CHARS: usize = 200;
/// The length of the prefix of a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The delay before the first retry; doubled with each failure in a row, up to [`MAX_DELAY`], until the timeout.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Where a call of gRPC has its status: in the trailers, or in the headers of an answer without a message.
const GRPC_STATUS: &str = "grpc-status";
/// The status codes of gRPC after which a request may be repeated (OTLP, "Failures"): `CANCELLED`, `DEADLINE_EXCEEDED`,
/// `ABORTED`, `OUT_OF_RANGE`, `UNAVAILABLE`, `DATA_LOSS`.
const RETRYABLE: [&str; 6] = ["1", "4", "10", "11", "14", "15"];

/// Why spans did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The collector was not reached, or did not answer in time.
    #[error("{0}")]
    Unreachable(#[from] reqwest::Error),
    /// Its answer is not readable.
    #[error("unreadable answer")]
    Unreadable,
    /// It refused them, and may ask to wait before a retry.
    #[error("HTTP status {0}")]
    Status(StatusCode, Option<Duration>),
    /// It refused them, by gRPC's status.
    #[error("gRPC status {0}")]
    Grpc(String),
    /// It accepted the others but rejected so many, and says why.
    #[error("{0} spans rejected: {1:?}")]
    Rejected(usize, String),
    /// They do not fit into a message.
    #[error("too large for a message")]
    TooLarge,
}

impl SendError {
    /// The least delay after which the collector may accept the same request; `None` if it will not.
    fn retry_after(&self) -> Option<Duration> {
        let is_retryable = match self {
            Self::Unreachable(error) => error.is_connect(),
            Self::Status(status, retry_after) => {
                // The statuses of OTLP over HTTP, which proxies send to calls of gRPC as well.
                return matches!(status.as_u16(), 429 | 502..=504).then(|| retry_after.unwrap_or_default());
            }
            Self::Grpc(status) => RETRYABLE.contains(&status.as_str()),
            Self::Unreadable | Self::Rejected(..) | Self::TooLarge => false,
        };
        is_retryable.then_some(Duration::ZERO)
    }
}

/// A collector.
pub(crate) struct Transport {
    client: Client,
    config: Config,
}

impl Transport {
    /// A client of the collector. A crypto provider for rustls must be installed.
    ///
    /// # Errors
    /// If the system's authorities cannot be read.
    pub(crate) fn new(config: Config) -> Result<Self, reqwest::Error> {
        let mut builder = Client::builder().redirect(Policy::none()).no_proxy();
        if config.protocol == Protocol::Grpc && config.url.scheme() == "http" {
            builder = builder.http2_prior_knowledge();
        }
        Ok(Self { client: builder.build()?, config })
    }

    /// Sends a request, again where the collector may accept it later, until the timeout.
    ///
    /// # Errors
    /// If it was not accepted, or only in part.
    pub(crate) async fn send(
        &self,
        message: Vec<u8>,
        jitter: impl Fn(Duration) -> Duration,
    ) -> Result<(), SendError> {
        let body = match self.config.protocol {
            Protocol::Http => Bytes::from(message),
            Protocol::Grpc => framed(&message)?,
        };
        let deadline = Instant::now() + self.config.timeout;
        let mut delay = FIRST_DELAY;
        loop {
            let sent = self.try_send(body.clone(), deadline - Instant::now()).await;
            let Some(wait) = sent.as_ref().err().and_then(SendError::retry_after) else { return sent };
            let wait = wait.max(jitter(delay));
            if wait >= deadline - Instant::now() {
                return sent;
            }
            sleep(wait).await;
            delay = (2 * delay).min(MAX_DELAY);
        }
    }

    async fn try_send(&self, body: Bytes, timeout: Duration) -> Result<(), SendError> {
        let is_grpc = self.config.protocol == Protocol::Grpc;
        let content_type = if is_grpc { "application/grpc" } else { "application/x-protobuf" };
        let mut request = self.client.post(self.config.url.clone()).headers(self.config.headers.clone());
        if is_grpc {
            request = request.header("te", "trailers");
        }
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static(content_type)).body(body);
        let sent = request.timeout(timeout).send().await;
        let answer: http::Response<Body> = sent.map_err(reqwest::Error::without_url)?.into();
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|_| SendError::Unreadable)?;
        if !head.status.is_success() {
            return Err(SendError::Status(head.status, retry_after(&head.headers)));
        }
        if is_grpc {
            // In the headers, where there is no message.
            let in_headers = head.headers.contains_key(GRPC_STATUS).then_some(&head.headers);
            check_grpc(in_headers.or(body.trailers()).ok_or(SendError::Unreadable)?)?;
        }
        let body = body.to_bytes();
        check_rejected(if is_grpc { body.get(PREFIX_BYTES..).unwrap_or_default() } else { &body })
    }
}

/// How long a collector asks to wait, in seconds. A date is not read: the delay of a retry is used.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Checks that no spans were rejected. The status decides where the answer cannot be decoded.
fn check_rejected(answer: &[u8]) -> Result<(), SendError> {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let rejected = answer.partial_success.unwrap_or_default();
    match usize::try_from(rejected.rejected_spans) {
        Ok(count) if count > 0 => {
            let message = rejected.error_message.chars().take(MESSAGE_CHARS).collect();
            Err(SendError::Rejected(count, message))
        }
        _ => Ok(()),
    }
}

fn framed(message: &[u8]) -> Result<Bytes, SendError> {
    let length = u32::try_from(message.len()).map_err(|_| SendError::TooLarge)?;
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(message);
    Ok(frame.freeze())
}

fn check_grpc(headers: &HeaderMap) -> Result<(), SendError> {
    let status = headers.get(GRPC_STATUS).ok_or(SendError::Unreadable)?;
    if status == "0" {
        return Ok(());
    }
    Err(SendError::Grpc(status.to_str().unwrap_or("of no number").to_owned()))
}
