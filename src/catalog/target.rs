//! The agent whose catalog is written.

use crate::model::audit::fingerprint::{Fingerprint, difference};
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::scope::{Revision, Scope};
use crate::store::write::{Write, WriteSummary};

pub(super) const NO_AGENT: Fault = Fault::NotFound("agent");

/// The agent whose catalog a write changes, and the revision that the write gives it.
#[derive(Debug)]
pub struct Target {
    pub(super) agent: AgentRef,
    pub(super) scope: Scope,
    /// The revision that the write gives it.
    pub(super) revision: Revision,
}

impl Target {
    /// Locks the scope of an agent's catalog.
    ///
    /// # Errors
    /// [`Fault::NotFound`] if the agent is gone.
    pub(super) async fn lock(write: &mut Write, agent: AgentRef) -> Result<Self, Fault> {
        let scope = Scope::from(agent.uid);
        let revision = write.lock(scope).await?.ok_or(NO_AGENT)?;
        if write.agent_exists(agent.tenant, agent.uid).await? {
            Ok(Self { agent, scope, revision })
        } else {
            Err(NO_AGENT)
        }
    }

    /// The newest committed revision.
    pub(super) fn present(&self) -> Revision {
        Revision(self.revision.0 - 1)
    }

    /// The summary of a write that creates, changes or removes a definition, for the audit log.
    pub(super) fn summary(
        &self,
        subject: &str,
        old: Option<&impl Fingerprint>,
        new: Option<&impl Fingerprint>,
    ) -> WriteSummary {
        WriteSummary {
            subject: subject.to_owned(),
            revision: self.revision,
            created: old.is_none(),
            tenant: Some(self.agent.tenant),
            agent: Some(self.agent.uid),
            difference: difference(old, new),
        }
    }
}
