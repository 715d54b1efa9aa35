//! The OpenAPI document of the administration API.

use std::collections::BTreeMap;

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use crate::http::problem::Problem;

/// The path of the document.
const DOCUMENT: &str = "/admin/openapi.json";

/// The document without its operations.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Waggle administration",
        description = "Manages tenants, agents, keys, and the catalogs that MCP clients read: resources, resource templates and \
                       prompts."
    ),
    servers((url = "/", description = "This gateway")),
    components(schemas(Problem)),
    security(("key" = [])),
    modifiers(&Credential),
    tags(
        (name = "Tenants", description = "Owners of agents and keys."),
        (name = "Connections", description = "Where content from outside is, and which tenants may use it."),
        (name = "Agents", description = "MCP servers, each with an endpoint of its own at `/{agent}/mcp`."),
        (name = "Keys", description = "Credentials of agents and of tenants."),
        (name = "Resources", description = "Contents that clients read by URI."),
        (name = "Templates", description = "Bodies for all URIs that match a template, rendered on read."),
        (name = "Prompts", description = "Messages that are rendered with a client's arguments."),
        (name = "Skills", description = "Folders of instructions that clients list and read by URI."),
        (name = "Mounts", description = "Trees of connections whose files are resources."),
        (name = "Hooks", description = "Signed requests from outside, after which resources count as changed."),
        (name = "Manifests", description = "The whole catalog of an agent as one document."),
        (name = "Audit", description = "The audit log."),
    )
)]
struct Frame;

/// The security scheme: every key is sent as a bearer token.
struct Credential;

impl Modify for Credential {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An operator key `wag_…`, an owner key `oag_…`, or an agent key `bak_…`."));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme.build()));
    }
}

/// Conditions on the current revision.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes what `Condition` reads")]
pub(super) struct Preconditions {
    /// Proceeds only if the current `ETag` is one of these; `*`: if the object exists.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
    /// Proceeds only if the current `ETag` is none of these; `*`: if the object does not exist.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

/// The failures of every operation.
pub(super) struct Problems;

/// Further failures of a write.
pub(super) struct WriteProblems;

const COMMON: [(&str, &str); 6] = [
    ("400", "`invalid_params`, `invalid_request`, `parse_error`"),
    ("401", "`unauthenticated`"),
    ("403", "`forbidden`, `insufficient_scope`, `forbidden_origin`"),
    ("404", "`not_found`: does not exist, or belongs to another tenant"),
    ("429", "`rate_limited`: retry after `Retry-After` seconds; `RateLimit` names the rate"),
    ("503", "`unavailable`, `storage_unavailable`: retry after `Retry-After` seconds"),
];

const OF_WRITES: [(&str, &str); 4] = [
    ("409", "`already_exists`, `slug_retired`, `in_use`"),
    ("412", "`revision_mismatch`: the precondition `If-Match` or `If-None-Match` failed"),
    ("413", "`payload_too_large`"),
    ("415", "`unsupported_media_type`"),
];

const OF_CONDITIONAL_READS: [(&str, &str); 1] =
    [("412", "`revision_mismatch`: the precondition `If-Match` failed")];

fn problems(of: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let problem = || ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response = |description: &str| {
        ResponseBuilder::new().description(description).content("application/problem+json", problem()).build()
    };
    of.iter().map(|(status, description)| ((*status).to_owned(), response(description).into())).collect()
}

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&COMMON)
    }
}

impl IntoResponses for WriteProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut all = problems(&COMMON);
        all.append(&mut problems(&OF_WRITES));
        all
    }
}

/// The answers to a `PUT` of a definition.
pub(super) struct PutAnswers;

impl IntoResponses for PutAnswers {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        revised(&[("200", "Replaced, or unchanged"), ("201", "Added")])
    }
}

/// The answers to a `DELETE` of a definition.
pub(super) struct DeleteAnswers;

impl IntoResponses for DeleteAnswers {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        revised(&[("204", "Removed")])
    }
}

/// The answers of a write with the revision of what was written, and its failures.
fn revised(of: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let tag = || HeaderBuilder::new().description(Some("The revision that last changed it")).build();
    let response = |description: &str| ResponseBuilder::new().description(description).header("ETag", tag());
    let mut all = WriteProblems::responses();
    all.extend(of.iter().map(|(status, text)| ((*status).to_owned(), response(text).build().into())));
    all
}

/// A router that records its routes in the document.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::with_openapi(Frame::openapi())
}

/// Describes the preconditions of each read whose answer has an `ETag`, since all of these are evaluated in one place.
pub(super) fn describe_conditional_reads(document: &mut utoipa::openapi::OpenApi) {
    for read in document.paths.paths.values_mut().filter_map(|path| path.get.as_mut()) {
        let responses = &mut read.responses.responses;
        let Some(RefOr::T(found)) = responses.get("200") else { continue };
        let Some(tag) = found.headers.get("ETag").cloned() else { continue };
        let known = "`If-None-Match` names the current `ETag`, or is `*`";
        responses.insert(
            "304".to_owned(),
            ResponseBuilder::new().description(known).header("ETag", tag).build().into(),
        );
        responses.extend(problems(&OF_CONDITIONAL_READS));
        read.parameters.get_or_insert_default().extend(Preconditions::into_params(|| None));
    }
}

/// The document as committed and served.
pub(super) fn text(document: &utoipa::openapi::OpenApi) -> String {
    // The document always serializes.
    document.to_pretty_json().unwrap_or_default() + "\n"
}

/// Serves the document.
pub(super) fn served<S: Clone + Send + Sync + 'static>(document: fn() -> &'static str) -> Router<S> {
    Router::new().route(DOCUMENT, get(async move || ([(CONTENT_TYPE, "application/json")], document())))
}
