//! Placeholders for agents that do not exist. Refusing an unknown agent takes as many look-ups as refusing a foreign one,
//! so that response times do not disclose whether an agent exists.

use std::sync::Arc;

use uuid::Uuid;

use crate::model::agent::{Access, AccessLimits, AgentAccess};
use crate::model::audit::chain::Digest;
use crate::model::ids::{AgentId, TenantId};

/// The tenant of placeholders.
pub(super) const NO_TENANT: TenantId = TenantId(Uuid::nil());

/// The placeholder that is cached for a slug that names no agent. It grants access to no caller.
pub(super) fn absent(slug: &str) -> Option<AgentAccess> {
    let id = *Digest::of(slug.as_bytes()).0.first_chunk::<16>()?;
    let agent = AgentId(Uuid::from_bytes(id));
    let limits = Arc::new(AccessLimits::unset(agent));
    Some(AgentAccess { agent, tenant: NO_TENANT, access: Access::Key, enabled: false, limits })
}

/// Whether these are the access settings of an agent, not a placeholder.
pub(super) fn is_present(access: &AgentAccess) -> bool {
    access.tenant != NO_TENANT
}
