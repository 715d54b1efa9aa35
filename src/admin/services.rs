//! The state that the handlers share: services, bounds, and the types of state and answers.

use std::sync::Arc;

use http::Method;

use super::audit_reads::AuditReader;
use super::definition::ContentLimits;
use super::limits::{LimitBounds, ManifestLimits};
use crate::catalog::Catalog;
use crate::config::Costs;
use crate::http::credential::Authenticator;
use crate::http::cursor::CursorSigner;
use crate::http::problem::AdminFault;
use crate::http::query_limiter::QueryLimiter;
use crate::identity::Identity;
use crate::quota::usage::UsageTracker;
use crate::sources::Connections;

/// The state of the handlers.
pub(super) type App = axum::extract::State<Arc<Admin>>;
/// The answer of a handler.
pub(super) type Answer<T> = Result<T, AdminFault>;

/// The services of the handlers.
#[derive(Debug)]
pub struct Admin {
    /// Tenants, agents, keys and access.
    pub identity: Arc<Identity>,
    /// What agents publish: resources, resource templates, prompts, skills and mounts.
    pub catalog: Arc<Catalog>,
    /// Connections to content from outside.
    pub connections: Arc<Connections>,
    /// The audit log.
    pub audit: AuditReader,
    /// Authenticates the cursors of lists.
    pub cursor_signer: CursorSigner,
    /// Verifies credentials, and charges requests to the rate limits.
    pub authenticator: Authenticator,
    /// Bounds the queries of calls.
    pub queries: Arc<QueryLimiter>,
    /// Counts usage.
    pub usage: Arc<UsageTracker>,
    /// The cost of requests.
    pub costs: Costs,
    /// The bounds of limits that may be set.
    pub settable: LimitBounds,
    /// The bounds of contents.
    pub content_limits: ContentLimits,
    /// The bounds of manifests.
    pub manifests: ManifestLimits,
}

impl Admin {
    /// The cost of a call.
    pub(super) fn cost(&self, method: &Method) -> u32 {
        if matches!(*method, Method::GET | Method::HEAD) {
            self.costs.admin_read
        } else {
            self.costs.admin_write
        }
    }
}
