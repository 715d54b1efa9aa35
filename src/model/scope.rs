//! Scopes, revisions and changes: the idea that everything here rests on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ids::{AgentId, SessionUid, TenantId};

/// Something that changes as a whole, by gapless revisions: the gateway's own settings, a tenant's access, an
/// agent's registry, a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(pub Uuid);

impl Scope {
    /// The gateway's own settings, the directory of agent slugs among them.
    pub const GATEWAY: Self = Self(Uuid::nil());
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

/// How often a scope has changed. Revisions of one scope are committed in their order, without a gap.
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

/// One subject that one revision of a scope touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision that did it.
    pub revision: Revision,
    /// What was done.
    pub kind: ChangeKind,
    /// To what: a URI, a slug or a uid, as the kind says.
    pub subject: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a change did, and what its subject names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ChangeKind {
            $($(#[$doc])* $name,)*
            /// Written by a newer version of the gateway: whoever meets it forgets all it holds of the scope.
            Unknown,
        }

        impl ChangeKind {
            /// As it stands in `changes`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown => "unknown",
                }
            }

            /// Reads what stands in `changes`.
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
    /// Gateway scope: an agent slug came to name another agent, or none. Subject: the slug.
    Slug = "slug",
    /// Gateway or tenant scope: a tenant was made, changed or deleted. Subject: the tenant's uid.
    Tenant = "tenant",
    /// Tenant scope: an agent's access changed; agent scope: its description did. Subject: the agent's uid.
    Agent = "agent",
    /// Tenant scope: a key was made, revoked or shortened. Subject: the key's uid.
    Key = "key",
    /// Agent scope: a resource was added. Subject: its URI.
    ResourceAdded = "resource_added",
    /// Agent scope: a resource was removed. Subject: its URI.
    ResourceRemoved = "resource_removed",
    /// Agent scope: what a list shows of a resource changed. Subject: its URI.
    ResourceDefined = "resource_defined",
    /// Agent scope: only the contents of a resource changed. Subject: its URI.
    ResourceContents = "resource_contents",
    /// Agent scope: its owner says that a resource changed, without new content. Subject: its URI.
    ResourceTouched = "resource_touched",
    /// Agent scope: a resource template was added. Subject: the template.
    TemplateAdded = "template_added",
    /// Agent scope: a resource template was removed. Subject: the template.
    TemplateRemoved = "template_removed",
    /// Agent scope: what a list shows of a resource template changed. Subject: the template.
    TemplateDefined = "template_defined",
    /// Agent scope: only the body of a resource template changed, and maybe its completions. Subject: the template.
    TemplateBody = "template_body",
    /// Agent scope: only the completions of a resource template changed. Subject: the template.
    TemplateCompletions = "template_completions",
    /// Agent scope: a prompt was added. Subject: its name.
    PromptAdded = "prompt_added",
    /// Agent scope: a prompt was removed. Subject: its name.
    PromptRemoved = "prompt_removed",
    /// Agent scope: what a list shows of a prompt changed. Subject: its name.
    PromptDefined = "prompt_defined",
    /// Agent scope: only the messages of a prompt changed, or its completions. Subject: its name.
    PromptMessages = "prompt_messages",
    /// Session scope: it subscribed to a resource or no longer does. Subject: the URI.
    SessionSubscription = "session_subscription",
    /// Session scope: it asks for messages from another level on. Subject: the level.
    SessionLevel = "session_level",
    /// Session scope: a new stream delivers from here on. Subject: the epoch.
    SessionStream = "session_stream",
    /// Session scope: it ended. Subject: the session's uid.
    SessionEnded = "session_ended",
}

impl ChangeKind {
    /// Whether it decides who may do what: it may revoke, disable or narrow something.
    pub fn decides_access(self) -> bool {
        matches!(
            self,
            Self::Slug | Self::Tenant | Self::Agent | Self::Key | Self::SessionEnded | Self::Unknown
        )
    }

    /// Whether it is about a resource.
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

    /// Whether it is about a resource template.
    pub fn is_of_template(self) -> bool {
        self.relists_templates() || matches!(self, Self::TemplateBody | Self::TemplateCompletions)
    }

    /// Whether it changes what a list of resource templates shows.
    pub fn relists_templates(self) -> bool {
        matches!(self, Self::TemplateAdded | Self::TemplateRemoved | Self::TemplateDefined)
    }

    /// Whether it is about a prompt.
    pub fn is_of_prompt(self) -> bool {
        self.relists_prompts() || self == Self::PromptMessages
    }

    /// Whether it changes what a list of prompts shows.
    pub fn relists_prompts(self) -> bool {
        matches!(self, Self::PromptAdded | Self::PromptRemoved | Self::PromptDefined)
    }
}

#[cfg(test)]
mod tests {
    use super::ChangeKind;

    #[test]
    fn a_kind_of_a_newer_version_is_unknown_and_not_an_error() {
        assert_eq!(ChangeKind::parse("resource_added"), ChangeKind::ResourceAdded);
        assert_eq!(ChangeKind::parse("tool_added"), ChangeKind::Unknown);
    }
}
