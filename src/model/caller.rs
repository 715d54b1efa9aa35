//! Credentials and what they grant.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::client_address::{ClientAddress, Networks};
use super::ids::{AgentId, KeyId, PrincipalId, TenantId};
use super::label::{CallerLabels, Labels};
use super::limits::KeyLimits;

/// A scope of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum KeyScope {
    /// Use of the MCP endpoint.
    Mcp,
    /// Management of the agent's catalog.
    Registry,
    /// Access to the agent's audit log.
    Audit,
}

impl KeyScope {
    /// The value that is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Registry => "registry",
            Self::Audit => "audit",
        }
    }

    /// Parses the stored value.
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

/// The kind of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key of an agent.
    AgentKey,
    /// A key of a tenant.
    OwnerKey,
    /// An access token of an issuer.
    Token,
}

/// The agents of its tenant that a credential may be used with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All agents.
    Tenant,
    /// These agents: one for an agent key, at most 100 for a token.
    Agents(Vec<AgentId>),
}

/// A verified credential. What each request needs, up to its kind, comes first: in a grant, in two lines of the
/// processor's caches.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Credential {
    /// Id of the key; for a token, an id derived from its subject.
    pub key: KeyId,
    /// Principal that acts with the credential.
    pub principal: PrincipalId,
    /// When it expires.
    pub expires_at: Option<OffsetDateTime>,
    /// Kind of the credential.
    pub kind: CredentialKind,
    /// Limits of the credential.
    pub limits: KeyLimits,
    /// Networks from which it may be used.
    pub networks: Networks,
    /// Tenant with whose scope the credential changes.
    pub tenant: TenantId,
    /// Agents that it may be used with.
    pub reach: Reach,
    /// Permitted scopes.
    pub scopes: Vec<KeyScope>,
    /// Labels; none for an owner key, which sees everything of its tenant.
    pub labels: Labels,
}

impl Credential {
    /// Whether the credential has a scope.
    pub fn allows(&self, scope: KeyScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether the credential may be used with this agent of this tenant.
    pub fn reaches(&self, tenant: TenantId, agent: AgentId) -> bool {
        let reached = match &self.reach {
            Reach::Tenant => true,
            Reach::Agents(own) => own.contains(&agent),
        };
        reached && self.tenant == tenant
    }

    /// The labels by which its holder sees definitions of this agent of this tenant: none at an agent that it does not
    /// reach.
    pub fn labels_at(&self, tenant: TenantId, agent: AgentId) -> CallerLabels {
        match self.kind {
            _ if !self.reaches(tenant, agent) => CallerLabels::default(),
            CredentialKind::OwnerKey => CallerLabels::Everything,
            CredentialKind::AgentKey | CredentialKind::Token => CallerLabels::These(self.labels.clone()),
        }
    }

    /// Whether the credential is a key of this agent, and is revoked with it.
    pub fn ends_with(&self, agent: AgentId) -> bool {
        matches!(&self.reach, Reach::Agents(own) if *own == [agent])
    }
}

/// The account to which work on shared capacity is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A tenant, for itself and for callers with its credentials.
    Tenant(TenantId),
    /// The anonymous callers of a tenant's public agents: without a credential, or with one that does not reach
    /// the agent.
    Anonymous(TenantId),
    /// The callers of a [network](ClientAddress::network) whose tenant is not known yet.
    Address(ClientAddress),
    /// The gateway, for what it does in the background.
    Gateway,
}

impl Payer {
    /// Whether the payer is the anonymous callers of a tenant's public agents.
    pub fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous(_))
    }
}

impl From<ClientAddress> for Payer {
    fn from(client: ClientAddress) -> Self {
        Self::Address(client.network())
    }
}

/// What is known of a credential before it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognition {
    /// It is in memory as valid, or a key that this replica knows to be issued: nothing is charged to its address.
    Recognized,
    /// Verifying it takes no look-up of a key: no credential, a token, a key that is known not to exist.
    Unverified,
    /// A key that this replica does not know to be issued: its look-up is charged to its address.
    NotIssued,
}
