//! Inbound webhooks: signed requests from outside, after which content counts as changed.

use time::OffsetDateTime;

use super::audit::chain::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::connection::Sealed;
use super::ids::{AgentRef, HookId, ResourceUri};

/// A webhook of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its id, which is part of its URL.
    pub uid: HookId,
    /// The agent.
    pub agent: AgentRef,
    /// The resources that count as changed.
    pub uris: Vec<ResourceUri>,
    /// The secret that requests are signed with.
    pub sealed: Sealed,
    /// When it was created.
    pub created_at: OffsetDateTime,
}

impl Fingerprint for Hook {
    fn fingerprint(&self) -> Digest {
        Parts::default().part(self.uid.0).part(self.agent.uid.0).json(&self.uris).digest()
    }
}
