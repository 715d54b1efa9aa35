//! Slug look-ups: which agent and which tenant a slug names now.

use super::Identity;
use super::absent::{NO_TENANT, absent};
use super::directory::{DirectoryVersion, TenantAddress};
use crate::model::agent::AgentAccess;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::sources::FailPoint;

impl Identity {
    /// The access settings of the agent that a slug names now.
    pub(super) async fn access_by_slug(&self, slug: &str) -> Result<Option<AgentAccess>, Fault> {
        if let Some(address) = self.agent_address(slug).await? {
            return self.agent_access(address, None).await;
        }
        // A malformed slug discloses nothing: it can name no agent.
        if Slug::is_slug(slug)
            && let Some(absent) = absent(slug)
        {
            self.agent_access((NO_TENANT, absent.agent), Some(absent)).await?;
        }
        Ok(None)
    }

    /// The agent that a slug names now. A malformed slug is neither looked up nor cached.
    pub(super) async fn agent_address(&self, slug: &str) -> Result<Option<(TenantId, AgentId)>, Fault> {
        if !Slug::is_slug(slug) {
            return Ok(None);
        }
        let directory = &self.memory.directory;
        let load = async || {
            directory
                .load(
                    &self.store,
                    &self.sources,
                    FailPoint::CacheFillRead,
                    async |view| view.agent_address(slug).await,
                    |facts, address| facts.keep_agent(slug, *address),
                )
                .await
                .map(Some)
        };
        Ok(self.loader.find(directory, |facts| facts.agent(slug), load).await?.flatten())
    }

    /// The tenant that a slug names now.
    pub(super) async fn tenant_address(&self, slug: &Slug) -> Result<Option<TenantAddress>, Fault> {
        let directory = &self.memory.directory;
        let load = async || {
            directory
                .load(
                    &self.store,
                    &self.sources,
                    FailPoint::CacheFillRead,
                    async |view| {
                        let found = view.tenant_address(slug).await?;
                        Ok(found.map(|(uid, created_at, recreated)| TenantAddress {
                            uid,
                            created_at,
                            recreated,
                        }))
                    },
                    |facts, address| facts.keep_tenant(slug.as_str(), *address),
                )
                .await
                .map(Some)
        };
        Ok(self.loader.find(directory, |facts| facts.tenant(slug.as_str()), load).await?.flatten())
    }

    /// The current version of the directory; `None` while nothing of it is cached.
    pub(super) async fn directory_version(&self) -> Result<Option<DirectoryVersion>, Fault> {
        self.loader.find(&self.memory.directory, |facts| Some(facts.version()), async || Ok(None)).await
    }
}
