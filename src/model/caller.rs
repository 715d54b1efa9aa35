//! Who calls, and what a credential allows.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::ids::{AgentId, KeyId, PrincipalId, TenantId};
use super::limits::KeyLimits;
use super::networks::Networks;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum KeyScope {
    /// Use the MCP endpoint.
    Mcp,
    /// Manage the agent's registry through the admin surface.
    Registry,
    /// Read the agent's audit log.
    Audit,
}

impl KeyScope {
    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Registry => "registry",
            Self::Audit => "audit",
        }
    }

    /// Reads what is stored.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Mcp, Self::Registry, Self::Audit].into_iter().find(|s| s.as_str() == text)
    }
}

impl TryFrom<String> for KeyScope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("unknown scope `{text}`, expected mcp, registry or audit"))
    }
}

/// What a credential is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of one agent.
    AgentKey,
    /// A key of a tenant.
    OwnerKey,
    /// An access token of an issuer.
    Token,
}

/// Which agents of its tenant a credential reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Tenant,
    /// These: one for an agent's key, at most a hundred for a token.
    Agents(Vec<AgentId>),
}

/// What a verified credential grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// What it is.
    pub kind: CredentialKind,
    /// The key; of a token, what stands for its subject.
    pub key: KeyId,
    /// Who acts with it.
    pub principal: PrincipalId,
    /// The tenant whose scope it changes with.
    pub tenant: TenantId,
    /// The agents that it reaches.
    pub reach: Reach,
    /// From where it may be used.
    pub networks: Networks,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// From when on it is refused.
    pub expires_at: Option<OffsetDateTime>,
    /// How much it may use.
    pub limits: KeyLimits,
}

impl Credential {
    /// Whether it may do `scope` at all. An owner key has all scopes, unless it was made with fewer.
    pub fn allows(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether it reaches this agent of this tenant.
    pub fn reaches(&self, tenant: TenantId, agent: AgentId) -> bool {
        let reached = match &self.reach {
            Reach::Tenant => true,
            Reach::Agents(own) => own.contains(&agent),
        };
        reached && self.tenant == tenant
    }

    /// Whether it ends with this agent: whether it is a key of it.
    pub fn ends_with(&self, agent: AgentId) -> bool {
        matches!(&self.reach, Reach::Agents(own) if *own == [agent])
    }
}

/// Who acts on the admin surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Administrator {
    /// The gateway's operator: everything.
    Operator,
    /// A key of a tenant or of an agent.
    Key(std::sync::Arc<Credential>),
}
