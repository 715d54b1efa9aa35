//! Sends one encoded request to a collector: as the body of an HTTP request, or as a unary call of gRPC.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use reqwest::redirect::Policy;
use reqwest::{Body, Client};

use crate::config::{Config, Protocol};

/// The maximum length of a collector's answer.
const ANSWER_BYTES: usize = 64 * 1024;
/// The length of the prefix of a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Why spans did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The collector was not reached, or did not answer in time.
    #[error("{0}")]
    Unreachable(#[from] reqwest::Error),
    /// Its answer is not readable.
    #[error("unreadable answer")]
    Unreadable,
    /// It refused them.
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// It refused them, by gRPC's status.
    #[error("gRPC status {0}")]
    Grpc(String),
    /// They do not fit into a message.
    #[error("too large for a message")]
    TooLarge,
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
        let mut builder = Client::builder().timeout(config.timeout).redirect(Policy::none()).no_proxy();
        if config.protocol == Protocol::Grpc && config.url.scheme() == "http" {
            builder = builder.http2_prior_knowledge();
        }
        Ok(Self { client: builder.build()?, config })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If it was not accepted.
    pub(crate) async fn send(&self, message: Vec<u8>) -> Result<(), SendError> {
        let (content_type, body) = match self.config.protocol {
            Protocol::Http => ("application/x-protobuf", Bytes::from(message)),
            Protocol::Grpc => ("application/grpc", framed(&message)?),
        };
        let mut request = self.client.post(self.config.url.clone()).headers(self.config.headers.clone());
        if self.config.protocol == Protocol::Grpc {
            request = request.header("te", "trailers");
        }
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static(content_type)).body(body);
        let answer: http::Response<Body> = request.send().await.map_err(reqwest::Error::without_url)?.into();
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(|_| SendError::Unreadable)?;
        if !head.status.is_success() {
            return Err(SendError::Status(head.status));
        }
        match self.config.protocol {
            Protocol::Http => Ok(()),
            // In the headers, where there is no message.
            Protocol::Grpc => check_grpc(&head.headers)
                .or_else(|_| body.trailers().map_or(Err(SendError::Unreadable), check_grpc)),
        }
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
    let status = headers.get("grpc-status").ok_or(SendError::Unreadable)?;
    if status == "0" {
        return Ok(());
    }
    Err(SendError::Grpc(status.to_str().unwrap_or("of no number").to_owned()))
}
