//! Tenants and agents, as the registry knows them.

use std::sync::Arc;

use serde::Serialize;
use time::OffsetDateTime;

use super::ids::{AgentId, Slug, TenantId};
use super::limits::UseLimits;
use super::scope::Revision;

/// Who may read an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Access {
    /// Whoever holds a key of the agent or of its tenant.
    Key,
    /// Everybody, read only.
    Public,
}

impl Access {
    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Public => "public",
        }
    }

    /// Reads what is stored.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "key" => Some(Self::Key),
            "public" => Some(Self::Public),
            _ => None,
        }
    }
}

impl TryFrom<String> for Access {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("unknown access `{text}`, expected key or public"))
    }
}

/// What decides over access to an agent. It changes with its tenant's scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAccess {
    /// The agent.
    pub agent: AgentId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Who may read it.
    pub access: Access,
    /// Whether it answers at all.
    pub enabled: bool,
    /// How much may be used of it.
    pub limits: Arc<AccessLimits>,
}

/// What was set for an agent and for its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLimits {
    /// The agent under which quotas and rates are counted.
    pub quota_holder: AgentId,
    /// For the agent.
    pub agent: UseLimits,
    /// For the tenant.
    pub tenant: UseLimits,
}

impl AccessLimits {
    /// Those of an agent for which, and for whose tenant, nothing was set.
    pub fn unset(agent: AgentId) -> Self {
        Self { quota_holder: agent, agent: UseLimits::default(), tenant: UseLimits::default() }
    }
}

/// What an agent says of itself. It changes with the agent's own scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDescription {
    /// The name of the `serverInfo`.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// What a client's model is told about using this server.
    pub instructions: Option<String>,
}

/// How old keys may become, in days of 24 hours: 1 to 3650.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAge(u16);

impl KeyAge {
    /// Ten years.
    const MOST_DAYS: u16 = 3650;

    /// So many days; `None` where they are none or too many.
    pub fn from_days(days: u16) -> Option<Self> {
        (1..=Self::MOST_DAYS).contains(&days).then_some(Self(days))
    }

    /// In days.
    pub fn days(self) -> u16 {
        self.0
    }

    /// When a key that was made then is too old, and no later than it expires anyway.
    pub fn cap(
        made: OffsetDateTime,
        expires: Option<OffsetDateTime>,
        age: Option<Self>,
    ) -> Option<OffsetDateTime> {
        let old = age.map(|age| made + time::Duration::days(age.0.into()));
        old.into_iter().chain(expires).min()
    }
}

/// A tenant, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its identity.
    pub uid: TenantId,
    /// What people type.
    pub slug: Slug,
    /// What people read.
    pub name: String,
    /// How many days old a key of it may become; `None`: as old as it likes.
    pub max_key_age: Option<KeyAge>,
    /// How much it may use.
    pub limits: UseLimits,
    /// The limits that a new agent of it starts with.
    pub agent_limits: UseLimits,
    /// The revision of its scope that last changed it.
    pub revision: Revision,
    /// When it was made.
    pub created_at: OffsetDateTime,
}

/// An agent, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its identity.
    pub uid: AgentId,
    /// What people type.
    pub slug: Slug,
    /// Whose it is.
    pub tenant: TenantId,
    /// The tenant's slug.
    pub tenant_slug: Slug,
    /// What it says of itself.
    pub description: AgentDescription,
    /// Who may read it.
    pub access: Access,
    /// Whether it answers at all.
    pub enabled: bool,
    /// Whether the operator disabled it, so that only the operator enables it again.
    pub disabled_by_operator: bool,
    /// How much may be used of it.
    pub limits: UseLimits,
    /// The agent under which its quotas and rates are counted: the first that had its slug.
    pub quota_holder: AgentId,
    /// The revision of its registry.
    pub revision: Revision,
    /// When it was made.
    pub created_at: OffsetDateTime,
}
