//! What is not there costs as much to find out as what is another's: no stranger learns from the time of a refusal
//! whether there is such an agent.

use std::sync::Arc;

use uuid::Uuid;

use super::Registry;
use crate::model::agent::{Access, AccessLimits, AgentAccess};
use crate::model::audit::chain::Digest;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};

/// The tenant of agents that are not there.
const NOBODY: TenantId = TenantId(Uuid::nil());

impl Registry {
    /// What decides over access to the agent that a slug names now.
    pub(super) async fn access_by_slug(&self, slug: &str) -> Result<Option<AgentAccess>, Fault> {
        if let Some(address) = self.address(slug).await? {
            return self.agent_access(address, None).await;
        }
        // What is no slug names nothing, as everybody knows.
        if Slug::is_slug(slug)
            && let Some(absent) = absent(slug)
        {
            self.agent_access((NOBODY, absent.agent), Some(absent)).await?;
        }
        Ok(None)
    }
}

/// Held in the place of the agent that a slug does not name, and answered to nobody.
pub(super) fn absent(slug: &str) -> Option<AgentAccess> {
    let id = *Digest::of(slug.as_bytes()).0.first_chunk::<16>()?;
    let agent = AgentId(Uuid::from_bytes(id));
    let limits = Arc::new(AccessLimits::unset(agent));
    Some(AgentAccess { agent, tenant: NOBODY, access: Access::Key, enabled: false, limits })
}

/// Whether access is that of an agent, and not held in the place of an absent one.
pub(super) fn is_present(access: &AgentAccess) -> bool {
    access.tenant != NOBODY
}
