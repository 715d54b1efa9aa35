//! The agent whose catalog is written.

use crate::model::audit::event::ChangeHashes;
use crate::model::audit::fingerprint::{Fingerprint, difference};
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::kinds::ByKind;
use crate::model::scope::{Revision, Scope};
use crate::store::agent_rows::Stored;
use crate::store::definitions::Table;
use crate::store::write::{Write, WriteSummary};

/// The agent whose catalog a write changes, and the revision that the write gives it.
#[derive(Debug)]
pub struct Target {
    pub(super) agent: AgentRef,
    pub(super) scope: Scope,
    /// The revision that the write gives it.
    pub(super) revision: Revision,
}

impl Target {
    /// Locks the scope of an agent's catalog, and reads the definition with this key.
    ///
    /// # Errors
    /// [`Fault::NotFound`] if the agent is gone.
    pub(super) async fn lock<K: Table>(
        write: &mut Write,
        agent: AgentRef,
        key: &str,
    ) -> Result<(Self, Option<K>), Fault> {
        let (revision, old) = write.lock_definition(agent, key).await?.ok_or(Fault::NO_AGENT)?;
        Ok((Self { agent, scope: Scope::from(agent.uid), revision }, old))
    }

    /// As [`lock`](Self::lock), with all definitions.
    pub(super) async fn lock_all(
        write: &mut Write,
        agent: AgentRef,
    ) -> Result<(Self, ByKind<Stored>), Fault> {
        let (revision, stored) = write.lock_definitions(agent).await?.ok_or(Fault::NO_AGENT)?;
        Ok((Self { agent, scope: Scope::from(agent.uid), revision }, stored))
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
        self.summary_of(subject, difference(old, new))
    }

    /// The summary of a write with these hashes.
    pub(super) fn summary_of(&self, subject: &str, difference: ChangeHashes) -> WriteSummary {
        let AgentRef { tenant, uid } = self.agent;
        WriteSummary::new(subject, self.revision, difference).owned_by(tenant, Some(uid))
    }
}
