//! The administration API, `/admin/v1`: one file per resource of the API.

mod agents;
mod audit;
mod audit_form;
mod audit_reads;
pub(crate) mod audited;
mod authentication;
mod authority;
mod browser;
mod connection_body;
mod connections;
mod content;
pub mod definition;
mod definitions;
mod described;
mod erased_handler;
mod explain;
mod extract;
mod hooks;
mod instant;
mod keys;
mod limits;
mod malformed;
mod manifest;
mod mounts;
mod openapi;
mod page;
mod prompts;
mod resources;
mod search;
mod services;
mod skill_files;
mod skills;
mod templates;
mod tenants;
mod usage;

use std::sync::{Arc, LazyLock};

use axum::Router;
use utoipa_axum::router::OpenApiRouter;

use crate::http::problem::AdminFault;
use crate::model::fault::Fault;

pub use audit_reads::AuditReader;
use authentication::Visit;
pub use described::check_body;
use erased_handler::routes;
pub(crate) use extract::finish;
pub use limits::{LimitBounds, ManifestLimits};
pub use services::Admin;

/// The routes of the operations, and what describes them. Made once in a process, which may start many gateways, as the tests
/// do: unoptimized, it takes more than the rest of a start.
static OPERATIONS: LazyLock<(Router<Arc<Admin>>, utoipa::openapi::OpenApi)> = LazyLock::new(|| {
    let (routes, mut document) = operations().split_for_parts();
    openapi::describe_conditional_reads(&mut document);
    (routes, document)
});
/// The document, which is written when it is first read: at a start few callers want it.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi::text(&OPERATIONS.1));

/// The administration API: the routes below `/admin/v1`, and their document.
pub fn router(admin: Arc<Admin>) -> Router {
    let charged = axum::middleware::from_extractor_with_state::<Visit, _>(Arc::clone(&admin));
    OPERATIONS
        .0
        .clone()
        .merge(hooks::received())
        .route_layer(axum::middleware::from_fn(audited::name))
        .merge(openapi::served(document).merge(browser::router()).route_layer(charged))
        .fallback(async |_: Visit| AdminFault(Fault::NotFound("path")))
        .method_not_allowed_fallback(extract::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&admin), authentication::check_host))
        .with_state(admin)
}

/// The OpenAPI document of the administration API, as JSON.
pub fn document() -> &'static str {
    &DOCUMENT
}

fn operations() -> OpenApiRouter<Arc<Admin>> {
    openapi::router()
        .routes(routes!(tenants::create, tenants::list))
        .routes(routes!(tenants::read, tenants::update, tenants::remove))
        .routes(routes!(keys::create_owner, keys::list_owner))
        .routes(routes!(connections::create, connections::list))
        .routes(routes!(connections::read, connections::update, connections::remove))
        .routes(routes!(connections::test))
        .routes(routes!(connections::list_of_tenant))
        .routes(routes!(connections::rekey))
        .routes(routes!(agents::create, agents::list))
        .routes(routes!(agents::read, agents::update, agents::remove))
        .routes(routes!(keys::create_agent, keys::list_agent))
        .routes(routes!(keys::update, keys::revoke))
        .routes(routes!(keys::rotate))
        .routes(routes!(resources::list_or_read, resources::write, resources::remove))
        .routes(routes!(content::write, content::read))
        .routes(routes!(resources::touch))
        .routes(routes!(templates::list_or_read, templates::write, templates::remove))
        .routes(routes!(skills::list_or_read, skills::write, skills::remove))
        .routes(routes!(skill_files::read, skill_files::write, skill_files::remove))
        .routes(routes!(mounts::list))
        .routes(routes!(mounts::read, mounts::write, mounts::remove))
        .routes(routes!(prompts::list))
        .routes(routes!(prompts::read, prompts::write, prompts::remove))
        .routes(routes!(manifest::show, manifest::apply))
        .routes(routes!(hooks::create, hooks::list))
        .routes(routes!(hooks::remove))
        .routes(routes!(search::search))
        .routes(routes!(usage::read))
        .routes(routes!(explain::explain))
        .routes(routes!(audit::read))
        .routes(routes!(audit::checkpoint))
}
