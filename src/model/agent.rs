//! Tenants and agents.

use std::sync::Arc;

use serde::Serialize;
use time::OffsetDateTime;

use super::ids::{AgentId, AgentRef, Slug, TenantId};
use super::limits::UseLimits;
use super::scope::Revision;
use super::tool::ToolSets;

/// Who may read an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Access {
    /// Holders of a key of the agent or of its tenant.
    Key,
    /// Everyone, read-only.
    Public,
}

impl Access {
    /// The value that is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Public => "public",
        }
    }

    /// Parses the stored value.
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

impl From<&Agent> for AgentRef {
    fn from(agent: &Agent) -> Self {
        Self { tenant: agent.tenant, uid: agent.uid }
    }
}

/// The access settings of an agent. They change with its tenant's scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAccess {
    /// The agent.
    pub agent: AgentId,
    /// Tenant of the agent.
    pub tenant: TenantId,
    /// Who may read it.
    pub access: Access,
    /// Whether requests to the agent are answered.
    pub enabled: bool,
    /// Whether, when this was read, the agent was known to have never had definitions of other kinds than resources.
    pub only_resources: bool,
    /// Limits of the agent and its tenant.
    pub limits: Arc<AccessLimits>,
}

/// The limits that apply to the use of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLimits {
    /// The agent under which quotas and rates are counted.
    pub quota_holder: AgentId,
    /// Limits of the agent.
    pub agent: UseLimits,
    /// Limits of the tenant.
    pub tenant: UseLimits,
}

impl AccessLimits {
    /// Without any limits set.
    pub fn unset(agent: AgentId) -> Self {
        Self { quota_holder: agent, agent: UseLimits::default(), tenant: UseLimits::default() }
    }
}

/// The description of an agent for clients. It changes with the agent's scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDescription {
    /// Name in `serverInfo`.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Instructions for the model of a client.
    pub instructions: Option<String>,
    /// The tools that it offers.
    pub tools: ToolSets,
}

/// Maximum age of keys, in days of 24 hours: 1 to 3650.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAge(u16);

impl KeyAge {
    /// Ten years.
    const MAX_DAYS: u16 = 3650;

    /// A number of days; `None` if it is out of range.
    pub fn from_days(days: u16) -> Option<Self> {
        (1..=Self::MAX_DAYS).contains(&days).then_some(Self(days))
    }

    /// The number of days.
    pub fn days(self) -> u16 {
        self.0
    }

    /// The expiry of a key created at `made`: the requested one, or when the maximum age is reached if that
    /// is earlier.
    pub fn cap(
        made: OffsetDateTime,
        expires: Option<OffsetDateTime>,
        age: Option<Self>,
    ) -> Option<OffsetDateTime> {
        let old = age.map(|age| made + time::Duration::days(age.0.into()));
        old.into_iter().chain(expires).min()
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Identity of the tenant.
    pub uid: TenantId,
    /// Name in URLs.
    pub slug: Slug,
    /// Name for people.
    pub name: String,
    /// Maximum age of its keys, if limited.
    pub max_key_age: Option<KeyAge>,
    /// Its limits.
    pub limits: UseLimits,
    /// The initial limits of its new agents.
    pub agent_limits: UseLimits,
    /// The revision of its scope that last changed it.
    pub revision: Revision,
    /// Time of creation.
    pub created_at: OffsetDateTime,
}

/// The tenant that a slug names.
#[derive(Debug, Clone, Copy)]
pub struct TenantAddress {
    /// Its identity.
    pub uid: TenantId,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// Whether another tenant had the slug before.
    pub recreated: bool,
}

impl TenantAddress {
    /// Whether a token issued at this time can be meant for this tenant. One without a time of issue may be meant for
    /// an earlier tenant of the slug, if there was one.
    pub fn accepts_token_issued_at(&self, issued_at: Option<OffsetDateTime>) -> bool {
        issued_at.map_or(!self.recreated, |issued| issued >= self.created_at)
    }
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Identity of the agent.
    pub uid: AgentId,
    /// Name in URLs.
    pub slug: Slug,
    /// Tenant of the agent.
    pub tenant: TenantId,
    /// The tenant's slug.
    pub tenant_slug: Slug,
    /// Description for clients.
    pub description: AgentDescription,
    /// Who may read it.
    pub access: Access,
    /// Whether requests to the agent are answered.
    pub enabled: bool,
    /// Whether the operator disabled it, so that only the operator can enable it.
    pub disabled_by_operator: bool,
    /// Its limits.
    pub limits: UseLimits,
    /// The agent under which quotas and rates are counted: the first that had this slug.
    pub quota_holder: AgentId,
    /// The current revision of its scope.
    pub revision: Revision,
    /// Time of creation.
    pub created_at: OffsetDateTime,
}
