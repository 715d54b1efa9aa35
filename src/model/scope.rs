//! Scopes, revisions and changes, the basis of caching and of the change feed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ids::{AgentId, SessionUid, TenantId};

/// A unit of state with a gapless revision: the gateway's own state, its connections, a tenant's access, an agent's
/// catalog, or a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(pub Uuid);

impl Scope {
    /// The gateway's own state, including the directory of slugs.
    pub const GATEWAY: Self = Self(Uuid::nil());
    /// The connections to content from outside, of all tenants.
    pub const CONNECTIONS: Self = Self(Uuid::from_u128(1));
}

impl From<TenantId> for Scope {
    fn from(tenant: TenantId) -> Self {
        Self(tenant.0)
    }
}

impl From<AgentId> for Scope {
    fn from(agent: AgentId) -> Self {
        Self(agent.0)
    }
}

impl From<SessionUid> for Scope {
    fn from(session: SessionUid) -> Self {
        Self(session.0)
    }
}

/// The number of changes of a scope. Revisions of a scope are committed in order, without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub i64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A change of one subject in one revision of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Revision of the change.
    pub revision: Revision,
    /// What was changed.
    pub kind: ChangeKind,
    /// The URI, slug or UUID concerned, depending on the kind.
    pub subject: String,
}

/// The head of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Current revision.
    pub revision: Revision,
    /// Changes at or below this revision are pruned.
    pub floor: Revision,
}

impl Change {
    /// Whether it is one of what a template or a mount answers a URI with: its subject is a
    /// [variant](super::variant::Variant).
    pub fn is_of_variant(&self) -> bool {
        match self.kind {
            ChangeKind::EntryChanged => true,
            ChangeKind::ResourceTouched => self.subject.contains(' '),
            _ => false,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of a change, and what its subject is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ChangeKind {
            $($(#[$doc])* $name,)*
            /// Written by a newer version: everything of the scope must be read again.
            Unknown,
        }

        impl ChangeKind {
            /// Every kind that this version writes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The value stored in `changes`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown => "unknown",
                }
            }

            /// Parses the value stored in `changes`.
            pub fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

kinds! {
    /// Gateway scope: a slug was assigned to another agent, or to none. Subject: the slug.
    Slug = "slug",
    /// Gateway or tenant scope: a tenant was created, changed or deleted. Subject: the tenant's UUID.
    Tenant = "tenant",
    /// Tenant scope: an agent's access settings changed; agent scope: its description. Subject: the agent's
    /// UUID.
    Agent = "agent",
    /// Agent scope: the tools that it offers changed. Subject: the agent's UUID.
    AgentTools = "agent_tools",
    /// Tenant scope: a key was created, revoked or its lifetime reduced. Subject: the key's UUID.
    Key = "key",
    /// Tenant scope: an inbound webhook was created or deleted. Subject: its UUID.
    Hook = "hook",
    /// Agent scope: a resource was added. Subject: its URI.
    ResourceAdded = "resource_added",
    /// Agent scope: a resource was removed. Subject: its URI.
    ResourceRemoved = "resource_removed",
    /// Agent scope: the definition of a resource changed. Subject: its URI.
    ResourceDefined = "resource_defined",
    /// Agent scope: only the content of a resource changed. Subject: its URI.
    ResourceContents = "resource_contents",
    /// Agent scope: a resource was touched, without new content, or its content at a connection changed. Subject: its URI;
    /// before it, where another definition answers some callers, the one whose content it is, and a space.
    ResourceTouched = "resource_touched",
    /// Agent scope: a resource template was added. Subject: the template.
    TemplateAdded = "template_added",
    /// Agent scope: a resource template was removed. Subject: the template.
    TemplateRemoved = "template_removed",
    /// Agent scope: the definition of a resource template changed. Subject: the template.
    TemplateDefined = "template_defined",
    /// Agent scope: only the body of a resource template changed, and possibly its completions. Subject: the
    /// template.
    TemplateBody = "template_body",
    /// Agent scope: only the completions of a resource template changed. Subject: the template.
    TemplateCompletions = "template_completions",
    /// Agent scope: a prompt was added. Subject: its name.
    PromptAdded = "prompt_added",
    /// Agent scope: a prompt was removed. Subject: its name.
    PromptRemoved = "prompt_removed",
    /// Agent scope: the definition of a prompt changed. Subject: its name.
    PromptDefined = "prompt_defined",
    /// Agent scope: only the messages of a prompt changed, or its completions. Subject: its name.
    PromptMessages = "prompt_messages",
    /// Agent scope: a skill was added. Subject: the URI of its folder, with a slash at the end.
    SkillAdded = "skill_added",
    /// Agent scope: a skill was removed. Subject: the URI of its folder.
    SkillRemoved = "skill_removed",
    /// Agent scope: the files or the labels of a skill changed. Subject: the URI of its folder.
    SkillChanged = "skill_changed",
    /// Agent scope: a file of a skill was added, removed or changed, or its labels. Subject: its URI.
    SkillFile = "skill_file",
    /// Agent scope: a mount was added. Subject: its name.
    MountAdded = "mount_added",
    /// Agent scope: a mount was removed. Subject: its name.
    MountRemoved = "mount_removed",
    /// Agent scope: a mount changed. Subject: its name.
    MountDefined = "mount_defined",
    /// Agent scope: what is below the URI of a mount may be served by something else. Subject: the URI.
    MountServed = "mount_served",
    /// Agent scope: files of a mount were listed for the first time. Subject: the name of the mount.
    MountListed = "mount_listed",
    /// Agent scope: a file of a mount appeared. Subject: the name of the mount, a space, and the URI of the file.
    EntryAdded = "entry_added",
    /// Agent scope: a file of a mount vanished. Subject: as of one that appeared.
    EntryRemoved = "entry_removed",
    /// Agent scope: a file of a mount changed. Subject: as of one that appeared.
    EntryChanged = "entry_changed",
    /// Agent scope: a scan of a mount was requested. Subject: its name.
    MountRequested = "mount_requested",
    /// Connections scope: a connection was created, changed or deleted. Subject: the connection's UUID.
    Connection = "connection",
    /// Connections scope: the secrets of a connection were encrypted under another key and are the same. Subject: the
    /// connection's UUID.
    ConnectionKey = "connection_key",
    /// Session scope: a subscription was added or removed. Subject: the URI.
    SessionSubscription = "session_subscription",
    /// Session scope: the level of log messages was set. Subject: the level.
    SessionLevel = "session_level",
    /// Session scope: a new stream was opened. Subject: the number of the stream.
    SessionStream = "session_stream",
    /// Session scope: the session ended. Subject: the session's UUID.
    SessionEnded = "session_ended",
}

impl ChangeKind {
    /// Whether the change may revoke, disable or narrow access.
    pub fn decides_access(self) -> bool {
        matches!(
            self,
            Self::Slug
                | Self::Tenant
                | Self::Agent
                | Self::Key
                | Self::Connection
                | Self::SessionEnded
                | Self::Unknown
        )
    }

    /// Whether a resource was changed.
    pub fn is_of_resource(self) -> bool {
        matches!(
            self,
            Self::ResourceAdded
                | Self::ResourceRemoved
                | Self::ResourceDefined
                | Self::ResourceContents
                | Self::ResourceTouched
        )
    }

    /// Whether a skill was changed.
    pub fn is_of_skill(self) -> bool {
        matches!(self, Self::SkillAdded | Self::SkillRemoved | Self::SkillChanged)
    }

    /// Whether a mount was changed.
    pub fn is_of_mount(self) -> bool {
        matches!(self, Self::MountAdded | Self::MountRemoved | Self::MountDefined)
    }

    /// Whether files of a mount were changed.
    pub fn is_of_entry(self) -> bool {
        matches!(self, Self::MountListed | Self::EntryAdded | Self::EntryRemoved | Self::EntryChanged)
    }

    /// Whether the list of resources changed, which shows sizes and times, each `SKILL.md` and the files of mounts.
    pub fn relists_resources(self) -> bool {
        self.is_of_resource() || self.is_of_skill() || self.is_of_mount() || self.is_of_entry()
    }

    /// Whether a resource template was changed.
    pub fn is_of_template(self) -> bool {
        self.relists_templates() || matches!(self, Self::TemplateBody | Self::TemplateCompletions)
    }

    /// Whether the list of resource templates changed.
    pub fn relists_templates(self) -> bool {
        matches!(self, Self::TemplateAdded | Self::TemplateRemoved | Self::TemplateDefined)
    }

    /// Whether a prompt was changed.
    pub fn is_of_prompt(self) -> bool {
        self.relists_prompts() || self == Self::PromptMessages
    }

    /// Whether the list of prompts changed.
    pub fn relists_prompts(self) -> bool {
        matches!(self, Self::PromptAdded | Self::PromptRemoved | Self::PromptDefined)
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeKind;

    #[test]
    fn kind_of_a_newer_version_is_unknown() {
        assert_eq!(ChangeKind::parse("resource_added"), ChangeKind::ResourceAdded);
        assert_eq!(ChangeKind::parse("kind_of_a_newer_version"), ChangeKind::Unknown);
    }
}
