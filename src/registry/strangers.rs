//! What is not there costs as much to find out as what is another's: no stranger learns from the time of a refusal
//! whether there is such an agent.

use std::sync::Arc;

use uuid::Uuid;

use super::Registry;
use crate::model::agent::{Access, AgentAccess};
use crate::model::audit::chain::Digest;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::sources::Point;

/// The tenant of agents that are not there.
const NOBODY: TenantId = TenantId(Uuid::nil());

impl Registry {
    /// What decides over access to the agent that a slug names now.
    pub(super) async fn access_by_slug(&self, slug: &str) -> Result<Option<AgentAccess>, Fault> {
        match self.address(slug).await? {
            Some((tenant, agent)) => self.agent_access(tenant, agent).await,
            None => self.no_access(slug).await.map(|()| None),
        }
    }

    /// Looks, and loads and remembers, as for an agent.
    async fn no_access(&self, slug: &str) -> Result<(), Fault> {
        if Slug::parse(slug).is_err() {
            return Ok(());
        }
        let Digest(hash) = Digest::of(slug.as_bytes());
        let Some(id) = hash.first_chunk::<16>() else { return Ok(()) };
        let agent = AgentId(Uuid::from_bytes(*id));
        let cell = self.tenant_cell(NOBODY);
        let looked = self.find(
            &cell,
            |held| held.agent(agent),
            async || {
                cell.load(
                    &self.store,
                    &self.sources,
                    Point::CacheFillRead,
                    async |view| view.agent_access(NOBODY, agent).await,
                    |held, _| held.keep_agent(nothing(agent)),
                )
                .await
            },
        );
        looked.await.map(drop)
    }
}

/// Held in the place of an agent that is not there, and answered to nobody.
fn nothing(agent: AgentId) -> AgentAccess {
    AgentAccess { agent, tenant: NOBODY, access: Access::Key, enabled: false, limits: Arc::default() }
}
