//! Inbound webhooks: signed requests from outside, after which content counts as changed.

use time::OffsetDateTime;

use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::connection::Sealed;
use super::ids::{AgentRef, HookId, ResourceUri, Slug};
use super::scope::Revision;

/// What a request to a hook is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookSubject {
    /// The resources that count as changed.
    Resources(Vec<ResourceUri>),
    /// The mount that is scanned, by its name.
    Mount(Slug),
}

impl HookSubject {
    /// The URIs of the resources; none of a mount.
    pub fn uris(&self) -> &[ResourceUri] {
        match self {
            Self::Resources(uris) => uris,
            Self::Mount(_) => &[],
        }
    }

    /// The name of the mount.
    pub fn mount(&self) -> Option<&Slug> {
        match self {
            Self::Resources(_) => None,
            Self::Mount(name) => Some(name),
        }
    }
}

/// A webhook of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its id, which is part of its URL.
    pub uid: HookId,
    /// The agent.
    pub agent: AgentRef,
    /// What a request to it is about.
    pub subject: HookSubject,
    /// The secret that requests are signed with.
    pub sealed: Sealed,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// The revision of its tenant that created it.
    pub revision: Revision,
}

impl Fingerprint for Hook {
    fn fingerprint(&self) -> Digest {
        let known = Parts::default().part(self.uid.0).part(self.agent.uid.0).json(&self.subject.uris());
        known.unless_default(&self.subject.mount()).digest()
    }
}
