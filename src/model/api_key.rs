//! Issued keys.

use time::OffsetDateTime;

use super::caller::KeyScope;
use super::client_address::Networks;
use super::ids::{AgentId, KeyId, PrincipalId, TenantId};
use super::limits::KeyLimits;
use super::scope::Revision;

/// An issued key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Identity of the key.
    pub uid: KeyId,
    /// Tenant of the key.
    pub tenant: TenantId,
    /// The agent that it reaches; `None` for an owner key.
    pub agent: Option<AgentId>,
    /// The first 12 characters of the key.
    pub display: String,
    /// Name for people.
    pub name: String,
    /// Permitted scopes.
    pub scopes: Vec<KeyScope>,
    /// Limits of the key.
    pub limits: KeyLimits,
    /// Principal that acts with the key.
    pub principal: PrincipalId,
    /// The principal of the key that created or rotated it; `None` for the operator.
    pub maker: Option<PrincipalId>,
    /// The revision of the tenant's scope that last changed it.
    pub revision: Revision,
    /// Time of creation.
    pub created_at: OffsetDateTime,
    /// When it expires: the requested expiry, or when the tenant's maximum age is reached if that is earlier.
    pub expires_at: Option<OffsetDateTime>,
    /// The expiry that was requested, or that a rotation set.
    pub asked_expiry: Option<OffsetDateTime>,
    /// Networks from which it may be used.
    pub networks: Networks,
    /// When it was revoked.
    pub revoked_at: Option<OffsetDateTime>,
    /// When it was last used, with a resolution of a minute.
    pub last_used_at: Option<OffsetDateTime>,
}

impl ApiKey {
    /// Whether the key is neither revoked nor expired.
    pub fn is_active(&self, now: OffsetDateTime) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }
}
