//! The limits of identity. Each has a setting, documented in `config/waggle.toml`.

use crate::model::limits::Rate;

/// The limits of [`Identity`](super::Identity).
#[derive(Debug, Clone)]
pub struct IdentityLimits {
    /// Look-ups per second of keys that are not known to be issued; further ones are refused as `unavailable`.
    pub unknown_keys_per_second: u32,
    /// Agents of one tenant.
    pub agents_per_tenant: u32,
    /// Slugs that stay reserved for one tenant because agents of it had them.
    pub retired_slugs_per_tenant: u32,
    /// Active keys of one agent, and active owner keys of one tenant.
    pub active_keys: u32,
    /// The rate of a key without a rate of its own.
    pub key_rate: Option<Rate>,
}
