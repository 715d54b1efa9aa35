//! The admin surface, `/admin/v1`: one file a resource of the API.

mod agents;
mod authority;
mod content;
pub mod definition;
mod extract;
mod keys;
mod manifest;
mod page;
mod prompts;
mod resources;
mod templates;
mod tenants;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post, put};
use tokio::sync::Semaphore;

use crate::http::cursor::CursorSeal;
use crate::http::problem::AdminFault;
use crate::model::fault::Fault;
use crate::model::key::KeyHash;
use crate::registry::Registry;

/// What the handlers share.
#[derive(Debug)]
pub struct Admin {
    /// The use cases.
    pub registry: Arc<Registry>,
    /// Seals the cursors of lists.
    pub seal: CursorSeal,
    /// The hash of the operator's key.
    pub operator: KeyHash,
    /// Most bytes of the contents of one resource.
    pub content_bytes: usize,
    /// Most bytes of a manifest, as JSON.
    pub manifest_bytes: usize,
    /// Places of those who work on a manifest: each takes several times its bytes.
    pub manifests: Arc<Semaphore>,
}

pub(crate) use extract::finish;

type App = axum::extract::State<Arc<Admin>>;
type Answer<T> = Result<T, AdminFault>;

/// The routes below `/admin/v1`.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/admin/v1/tenants", post(tenants::create).get(tenants::list))
        .route(
            "/admin/v1/tenants/{tenant}",
            get(tenants::read).patch(tenants::update).delete(tenants::remove),
        )
        .route("/admin/v1/tenants/{tenant}/keys", post(keys::create_owner).get(keys::list_owner))
        .route("/admin/v1/agents", post(agents::create).get(agents::list))
        .route("/admin/v1/agents/{agent}", get(agents::read).patch(agents::update).delete(agents::remove))
        .route("/admin/v1/agents/{agent}/keys", post(keys::create_agent).get(keys::list_agent))
        .route("/admin/v1/keys/{key}", delete(keys::revoke))
        .route("/admin/v1/keys/{key}/rotate", post(keys::rotate))
        .route(
            "/admin/v1/agents/{agent}/resources",
            get(resources::list_or_read).put(resources::write).delete(resources::remove),
        )
        .route("/admin/v1/agents/{agent}/resources/content", put(content::write).get(content::read))
        .route("/admin/v1/agents/{agent}/resources/touch", post(resources::touch))
        .route(
            "/admin/v1/agents/{agent}/templates",
            get(templates::list_or_read).put(templates::write).delete(templates::remove),
        )
        .route("/admin/v1/agents/{agent}/prompts", get(prompts::list))
        .route(
            "/admin/v1/agents/{agent}/prompts/{name}",
            get(prompts::read).put(prompts::write).delete(prompts::remove),
        )
        .route("/admin/v1/agents/{agent}/manifest", get(manifest::show).put(manifest::apply))
        .fallback(async || AdminFault(Fault::NotFound("path")))
        .method_not_allowed_fallback(extract::method_not_allowed)
        .with_state(admin)
}
