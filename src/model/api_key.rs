//! Issued keys, as their owners see them.

use time::OffsetDateTime;

use super::caller::KeyScope;
use super::ids::{AgentId, KeyId, PrincipalId, TenantId};
use super::limits::KeyLimits;
use super::networks::Networks;
use super::scope::Revision;

/// A key as its owner sees it: everything but the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its identity.
    pub uid: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The one agent it reaches; `None` for an owner key.
    pub agent: Option<AgentId>,
    /// Its first 12 characters.
    pub display: String,
    /// What its owner calls it.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// How much it may use.
    pub limits: KeyLimits,
    /// Who acts with it.
    pub principal: PrincipalId,
    /// The principal of the key that created or rotated it; `None` for the operator.
    pub maker: Option<PrincipalId>,
    /// The revision of the tenant's scope that last changed it.
    pub revision: Revision,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// From when on it is refused: the earlier of what was asked for and what the tenant's maximum age allows.
    pub expires_at: Option<OffsetDateTime>,
    /// The expiry that was asked for, or that a rotation left it.
    pub asked_expiry: Option<OffsetDateTime>,
    /// From where it may be used.
    pub networks: Networks,
    /// When it was revoked.
    pub revoked_at: Option<OffsetDateTime>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<OffsetDateTime>,
}

impl ApiKey {
    /// Whether it is neither revoked nor expired.
    pub fn is_active(&self, now: OffsetDateTime) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }
}
