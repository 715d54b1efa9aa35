//! Extractors: query, JSON body, raw body, `If-Match`; and the answer of a fault.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::authentication::Visit;
use super::malformed;
use crate::http::body::{MAX_DEPTH, is_too_deep};
use crate::http::intake::SharedContext;
use crate::http::problem::{self, AdminFault};
use crate::http::{media_type, precondition};
use crate::model::fault::Fault;
use crate::model::json::Object;
use crate::model::precondition::Precondition;

/// The body limit of a JSON body without contents.
const SMALL_BODY: usize = 256 * 1024;

impl IntoResponse for AdminFault {
    fn into_response(self) -> Response {
        // The server adds the body, which may name the request's id.
        let mut response = problem::status(&self.0).into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// Replaces the marker of a handler by its problem document.
pub(crate) fn finish(mut response: Response, request_id: Option<&str>) -> Response {
    match response.extensions_mut().remove::<Fault>() {
        Some(fault) => problem::response(&fault, request_id),
        None => response,
    }
}

/// The answer of a known path to an unsupported method.
pub(super) async fn method_not_allowed(_: Visit) -> Response {
    problem::method_not_allowed(None)
}

/// The parameter of the path. One that is not UTF-8 names nothing.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminFault> {
        let segment = Path::from_request_parts(parts, state).await;
        segment.map(|Path(text)| Self(text)).map_err(|_| Fault::NotFound("path").into())
    }
}

/// The second of two parameters of the path.
pub(super) struct SecondSegment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for SecondSegment {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminFault> {
        let segments = Path::<(String, String)>::from_request_parts(parts, state).await;
        segments.map(|Path((_, second))| Self(second)).map_err(|_| Fault::NotFound("path").into())
    }
}

/// Requires an empty query: an ignored parameter would be one that a client relies on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The query; unknown parameters are refused.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminFault> {
        let Query(params) = Query::try_from_uri(&parts.uri).map_err(|error| {
            let text = error.body_text();
            let why = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            let (name, why) = why.split_once(": ").unwrap_or(("", why));
            Fault::invalid_params(format!("query: {}", malformed::message(name, why)))
        })?;
        Ok(Self(params))
    }
}

/// For an optional member where `null` differs from omission, and is accepted or refused by `T`.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// For a member that is omitted if it is not set.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `If-Match` and `If-None-Match`.
pub(super) struct Condition(pub(super) Precondition);

impl<S: Send + Sync> FromRequestParts<S> for Condition {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminFault> {
        Ok(Self(precondition::read(&parts.headers)?))
    }
}

/// A JSON body of at most [`SMALL_BODY`] bytes; unknown members are refused.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = AdminFault;

    async fn from_request(request: Request, _: &S) -> Result<Self, AdminFault> {
        Ok(Self(json(request, SMALL_BODY).await?))
    }
}

/// Reads a JSON body of at most `limit` bytes.
pub(super) async fn json<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Fault> {
    parse(&json_bytes(request, limit).await?)
}

/// Reads a body of at most `limit` bytes that is declared as JSON.
pub(super) async fn json_bytes(request: Request, limit: usize) -> Result<Bytes, Fault> {
    media_type::check_json(request.headers())?;
    bytes(request, limit).await
}

/// Reads an optional JSON body of at most [`SMALL_BODY`] bytes.
pub(super) async fn optional_json<T: DeserializeOwned + Default>(request: Request) -> Result<T, Fault> {
    let declared = media_type::is_json(request.headers());
    let body = bytes(request, SMALL_BODY).await?;
    match (body.is_empty(), declared) {
        (true, _) => Ok(T::default()),
        (false, true) => parse(&body),
        (false, false) => Err(Fault::UnsupportedMediaType("application/json")),
    }
}

/// Reads a body of at most `limit` bytes without a content coding.
pub(super) async fn bytes(request: Request, limit: usize) -> Result<Bytes, Fault> {
    media_type::check_encoding(request.headers())?;
    let (parts, mut body) = request.into_parts();
    let call = SharedContext::of(&parts.extensions)?;
    let read = call.intake.read(&parts.headers, &mut body, limit).await?;
    call.with(|context| context.event.bytes_in = read.len() as u64);
    Ok(read)
}

/// Parses a JSON object.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    if is_too_deep(body) {
        return Err(Fault::InvalidRequest(format!("the body nests deeper than {MAX_DEPTH} levels").into()));
    }
    match serde_json::from_slice(body) {
        Ok(Object(parsed)) => Ok(parsed),
        Err(error) if error.is_data() => Err(Fault::invalid_params(located::<T>(body, &error))),
        Err(error) if is_json_text(body) => {
            let (line, column) = (error.line(), error.column());
            let what = "a lone surrogate or a number out of range";
            Err(Fault::invalid_params(format!("the body contains {what} at line {line} column {column}")))
        }
        Err(error) => Err(Fault::ParseError(format!("the body is not JSON: {error}").into())),
    }
}

/// The error of a body, preceded by the path of the member. The path is tracked only after an error, since tracking takes
/// time.
fn located<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> String {
    let input = &mut serde_json::Deserializer::from_slice(body);
    let Err(found) = serde_path_to_error::deserialize::<_, Object<T>>(input) else {
        return error.to_string();
    };
    malformed::message(&found.path().to_string(), &error.to_string())
}

/// Whether it is syntactically JSON.
fn is_json_text(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Runs a long computation on a separate thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(job).await;
    done.unwrap_or_else(|error| Err(Fault::Internal(error.to_string())))
}
