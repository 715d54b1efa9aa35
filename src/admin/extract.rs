//! What a handler takes from a request: query, JSON body, raw body, `If-Match`; and how a fault is answered.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::authority::Visit;
use crate::http::client_context::ClientContext;
use crate::http::problem::{self, AdminFault};
use crate::http::{media_type, precondition};
use crate::model::fault::Fault;
use crate::model::json::{Object, is_too_deep};
use crate::registry::audited::AuditedCall;
use crate::registry::write::Precondition;

/// Most bytes of a JSON body that carries no contents.
const SMALL_BODY: usize = 256 * 1024;

impl IntoResponse for AdminFault {
    fn into_response(self) -> Response {
        // The border fills in the request's id, which is not known here.
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// Replaces the mark that a handler left by the problem it stands for.
pub(crate) fn finish(mut response: Response, request_id: Option<&str>) -> Response {
    match response.extensions_mut().remove::<Fault>() {
        Some(fault) => problem::response(&fault, request_id),
        None => response,
    }
}

/// A known path, and a method that it has not.
pub(super) async fn method_not_allowed(_: Visit) -> Response {
    problem::method_not_allowed(None)
}

/// What stands in the path. What is no text names nothing.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminFault> {
        let segment = Path::from_request_parts(parts, state).await;
        segment.map(|Path(text)| Self(text)).map_err(|_| Fault::NotFound("path").into())
    }
}

/// What stands in the path in two places.
pub(super) struct Segments(pub(super) String, pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segments {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminFault> {
        let segments = Path::from_request_parts(parts, state).await;
        segments.map(|Path((one, other))| Self(one, other)).map_err(|_| Fault::NotFound("path").into())
    }
}

/// No query at all: a parameter that would be ignored is one that somebody relies on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The query, with every name known.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminFault> {
        let Query(params) = Query::try_from_uri(&parts.uri).map_err(|error| {
            let text = error.body_text();
            let why = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            Fault::invalid_params(format!("query: {why}"))
        })?;
        Ok(Self(params))
    }
}

/// For a member that may be left out: `null` is not the same as that, and taken or refused as `T` says.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// For a member that is not shown where nothing was set.
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

/// A JSON body of at most [`SMALL_BODY`] bytes, with every member known.
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

/// Reads a body of at most `limit` bytes that says it is JSON.
pub(super) async fn json_bytes(request: Request, limit: usize) -> Result<Bytes, Fault> {
    media_type::check_json(request.headers())?;
    bytes(request, limit).await
}

/// Reads a JSON body of at most [`SMALL_BODY`] bytes, which may be left out.
pub(super) async fn optional_json<T: DeserializeOwned + Default>(request: Request) -> Result<T, Fault> {
    let declared = media_type::is_json(request.headers());
    let body = bytes(request, SMALL_BODY).await?;
    match (body.is_empty(), declared) {
        (true, _) => Ok(T::default()),
        (false, true) => parse(&body),
        (false, false) => Err(Fault::UnsupportedMediaType("application/json")),
    }
}

/// Reads a body of at most `limit` bytes, in no content coding.
pub(super) async fn bytes(request: Request, limit: usize) -> Result<Bytes, Fault> {
    media_type::check_encoding(request.headers())?;
    let (parts, mut body) = request.into_parts();
    let read = ClientContext::of(&parts.extensions)?.intake.read(&mut body, limit).await?;
    AuditedCall::describe(|event| event.bytes_in = read.len() as u64);
    Ok(read)
}

/// Parses a JSON object into what it must be.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    if is_too_deep(body) {
        return Err(Fault::InvalidRequest("the body nests deeper than 64 levels".into()));
    }
    match serde_json::from_slice(body) {
        Ok(Object(parsed)) => Ok(parsed),
        Err(error) if error.is_data() => Err(Fault::invalid_params(located::<T>(body, &error))),
        Err(error) if is_json_text(body) => {
            let (line, column) = (error.line(), error.column());
            let what = "a lone surrogate or a number out of range";
            Err(Fault::invalid_params(format!("the body holds {what} at line {line} column {column}")))
        }
        Err(error) => Err(Fault::ParseError(format!("the body is not JSON: {error}").into())),
    }
}

/// What is wrong with the members of a body, after the path of the one that it is about. The path is looked for only
/// when something is wrong: following it takes time.
fn located<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> String {
    let input = &mut serde_json::Deserializer::from_slice(body);
    let Err(found) = serde_path_to_error::deserialize::<_, Object<T>>(input) else {
        return error.to_string();
    };
    let (path, error) = (found.path().to_string(), error.to_string());
    // Of an unknown member the message has the name, and the path ends with it.
    let path = if error.starts_with("unknown field") {
        path.rsplit_once('.').map_or("", |(parent, _)| parent)
    } else {
        path.trim_start_matches('.')
    };
    if path.is_empty() { error } else { format!("{path}: {error}") }
}

/// Whether it has the form of JSON, whatever its strings and numbers stand for.
fn is_json_text(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}
