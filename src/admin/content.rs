//! `/agents/{agent}/resources/content`: the raw bytes, for `curl --data-binary @file`.

use axum::extract::Request;
use axum::response::IntoResponse;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};

use super::definition::checks::{MimeText, checked_mime};
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, bytes};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::resources::UriParam;
use super::services::Answer;
use crate::catalog::resources::RawContent;
use crate::http::precondition::etag;
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::resource::{PartKind, Resource};

/// The default of `curl --data-binary`, which says nothing about the file.
const CURL_DEFAULT: &str = "application/x-www-form-urlencoded";

/// Replaces the content of a resource by raw bytes, or adds a resource.
///
/// Without a `Content-Type` the content keeps its MIME type. A resource with several contents is refused.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/resources/content",
    operation_id = "putContent",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam, Preconditions),
    request_body(content = Vec<u8>, description = "The bytes, `Content-Type` being their MIME type", content_type = "*/*"),
    responses((status = 200, description = "Replaced, or unchanged", headers(("ETag" = String, description = "The revision that last changed it"))), (status = 201, description = "A resource was added", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn write(
    call: CatalogCall,
    Params(param): Params<UriParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let uri = Resource::parse_key(&param.uri)?;
    let mime_type = declared(request.headers())?;
    let bytes = bytes(request, call.app.content_limits.content_bytes).await?;
    let content = RawContent { mime_type, bytes };
    let (status, audited) = call.authority.answers_put();
    let written = call.app.catalog.put_content(&agent, uri, content, condition, audited).await?;
    Ok((status(written.created), [(ETAG, etag(written.revision))]))
}

/// Reads the raw bytes of a resource that has exactly one content.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/resources/content",
    operation_id = "readContent",
    tag = "Resources",
    params(("agent" = String, Path, description = "The id of the agent"), UriParam),
    responses((status = 200, description = "The bytes", body = Vec<u8>, content_type = "*/*", headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(call: CatalogCall, Params(param): Params<UriParam>) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let full = call.app.catalog.definition::<Resource>(&agent, &Resource::parse_key(&param.uri)?).await?;
    if full.definition.source.is_some() {
        return Err(Fault::invalid_params(
            "the content of the resource comes from a connection and is not stored; read it at the MCP endpoint",
        )
        .into());
    }
    let [part] = full.definition.parts.as_slice() else {
        return Err(
            Fault::invalid_params("the resource does not have exactly one content; read it as JSON").into()
        );
    };
    let mime = full.definition.mime_type_of(part).unwrap_or(default_mime(part.kind));
    let mime = HeaderValue::try_from(mime).unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (CONTENT_TYPE, mime),
        (ETAG, etag(full.definition.revision)),
        // Content of a tenant: browsers must not interpret it as a page of the gateway.
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((headers, full.bytes.get(&part.hash).cloned().unwrap_or_default()))
}

/// The MIME type of the request; `None` keeps the resource's.
pub(super) fn declared(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(None) };
    let wrong = || Fault::invalid_params("Content-Type is not a MIME type");
    let text = value.to_str().map_err(|_| wrong())?;
    if text == CURL_DEFAULT {
        return Ok(None);
    }
    let mime = MimeText::try_from(text.to_owned()).map_err(|_| wrong())?;
    checked_mime("Content-Type", mime).map(Some)
}

fn default_mime(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Text => "text/plain; charset=utf-8",
        PartKind::Blob => "application/octet-stream",
    }
}
