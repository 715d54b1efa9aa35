//! The OpenAPI document of the admin surface.

use std::collections::BTreeMap;

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use crate::http::problem::Problem;

/// Where the document is served.
const DOCUMENT: &str = "/admin/openapi.json";

/// What the document says besides its operations.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Waggle administration",
        description = "What operators, owners of tenants and hosted agents manage: tenants, agents, keys, and what \
                       an agent registers for MCP clients to read."
    ),
    servers((url = "/", description = "This gateway")),
    components(schemas(Problem)),
    security(("key" = [])),
    modifiers(&Credential),
    tags(
        (name = "Tenants", description = "Who agents belong to."),
        (name = "Agents", description = "MCP servers, each with an endpoint of its own at `/{agent}/mcp`."),
        (name = "Keys", description = "Credentials of agents and of tenants."),
        (name = "Resources", description = "What clients read by URI."),
        (name = "Templates", description = "What answers to every URI that matches, rendered when it is read."),
        (name = "Prompts", description = "Messages that are rendered with a client's arguments."),
        (name = "Manifests", description = "The whole registry of an agent as one document."),
        (name = "Audit", description = "Who asked for what, and when."),
    )
)]
struct Frame;

/// The one scheme: every key goes as a bearer token.
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

/// Conditions on the present revision.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes what `Condition` reads")]
pub(super) struct Preconditions {
    /// Only where the present `ETag` is one of these; `*` where there is one at all.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
    /// Only where the present `ETag` is none of these; `*` where there is none at all.
    #[param(rename = "If-None-Match")]
    if_none_match: Option<String>,
}

/// What every operation may answer when it fails.
pub(super) struct Problems;

/// What a write may answer besides.
pub(super) struct WriteProblems;

const COMMON: [(&str, &str); 6] = [
    ("400", "`invalid_params`, `invalid_request`, `parse_error`"),
    ("401", "`unauthenticated`"),
    ("403", "`forbidden`, `insufficient_scope`, `forbidden_origin`"),
    ("404", "`not_found`: no such thing, or not yours"),
    ("429", "`rate_limited`: try again after `Retry-After` seconds; `RateLimit` names the rate"),
    ("503", "`unavailable`, `storage_unavailable`: try again after `Retry-After` seconds"),
];

const OF_WRITES: [(&str, &str); 5] = [
    ("408", "`invalid_request`: the body arrived too slowly"),
    ("409", "`already_exists`, `slug_retired`"),
    ("412", "`revision_mismatch`: `If-Match` or `If-None-Match` does not hold"),
    ("413", "`payload_too_large`"),
    ("415", "`unsupported_media_type`"),
];

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

/// A router that notes what it routes.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::with_openapi(Frame::openapi())
}

/// The document as it is checked in and served.
pub(super) fn text(document: &utoipa::openapi::OpenApi) -> String {
    // Nothing in it can fail to be JSON.
    document.to_pretty_json().unwrap_or_default() + "\n"
}

/// Serves the document.
pub(super) fn served<S: Clone + Send + Sync + 'static>(document: &utoipa::openapi::OpenApi) -> Router<S> {
    let text = text(document);
    let serve = move || {
        let text = text.clone();
        async move { ([(CONTENT_TYPE, "application/json")], text) }
    };
    Router::new().route(DOCUMENT, get(serve))
}
