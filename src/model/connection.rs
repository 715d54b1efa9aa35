//! Connections: where content from outside is, with which secrets and limits it is fetched, and which tenants may use it.

use std::collections::BTreeMap;
use std::time::Duration;

use content_source::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::fault::Fault;
use super::ids::{ConnectionId, Slug, TenantId};
use super::limits::Rate;
use super::scope::Revision;

/// A connection as it is stored, its secrets encrypted.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredConnection {
    /// Its UUID.
    pub uid: ConnectionId,
    /// Its id in the administration API.
    pub slug: Slug,
    /// What it connects to.
    pub kind: Kind,
    /// The tenants that may use it.
    pub tenants: Tenants,
    /// The settings of its kind.
    pub settings: Map<String, Value>,
    /// Its secrets by name.
    pub secrets: BTreeMap<String, StoredSecret>,
    /// The limits of fetches.
    pub limits: ConnectionLimits,
    /// Whether anything is fetched from it.
    pub enabled: bool,
    /// The revision of the scope of connections that last changed it.
    pub revision: Revision,
    /// When it was created.
    pub created_at: OffsetDateTime,
}

/// The tenants that may use a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// All tenants.
    All,
    /// These tenants, by id.
    Only(BTreeMap<Slug, TenantId>),
}

impl Tenants {
    /// Maximum number of tenants that are named one by one.
    pub const MAX: usize = 1_000;

    /// Whether a tenant may use the connection.
    pub fn contains(&self, tenant: TenantId) -> bool {
        match self {
            Self::All => true,
            Self::Only(tenants) => tenants.values().any(|named| *named == tenant),
        }
    }
}

/// A secret as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// The encrypted value.
    pub sealed: Sealed,
    /// When its value was last set.
    pub updated_at: OffsetDateTime,
}

/// An encrypted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the key that it is encrypted under.
    pub key: String,
    /// The nonce, the ciphertext and the tag.
    pub bytes: Vec<u8>,
}

/// The limits of a connection, for each tenant and replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionLimits {
    /// The deadline of a fetch, in milliseconds.
    #[schema(minimum = 1, maximum = 120_000, default = 5_000)]
    pub timeout_ms: u32,
    /// The maximum number of bytes of one fetch.
    #[schema(minimum = 1, maximum = 67_108_864, default = 4_194_304)]
    pub max_bytes: u64,
    /// The maximum number of concurrent fetches.
    #[schema(minimum = 1, maximum = 1_024, default = 16)]
    pub concurrent: u32,
    /// Fetches per second.
    #[schema(minimum = 1, maximum = 1_000_000, default = 50)]
    pub per_second: u32,
    /// Maximum burst of fetches.
    #[schema(minimum = 1, maximum = 1_000_000, default = 100)]
    pub burst: u32,
    /// How often content that is watched is polled, in milliseconds.
    #[schema(minimum = 1_000, maximum = 86_400_000, default = 30_000)]
    pub poll_ms: u32,
}

/// Changes of limits; a member that is missing stays as it is.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectionLimitChanges {
    /// The deadline of a fetch, in milliseconds.
    #[schema(minimum = 1, maximum = 120_000)]
    pub timeout_ms: Option<u32>,
    /// The maximum number of bytes of one fetch.
    #[schema(minimum = 1, maximum = 67_108_864)]
    pub max_bytes: Option<u64>,
    /// The maximum number of concurrent fetches.
    #[schema(minimum = 1, maximum = 1_024)]
    pub concurrent: Option<u32>,
    /// Fetches per second.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub per_second: Option<u32>,
    /// Maximum burst of fetches.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<u32>,
    /// How often content that is watched is polled, in milliseconds.
    #[schema(minimum = 1_000, maximum = 86_400_000)]
    pub poll_ms: Option<u32>,
}

impl ConnectionLimitChanges {
    /// The limits after the changes.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], which names the first member out of range.
    pub fn apply_to(self, limits: ConnectionLimits) -> Result<ConnectionLimits, Fault> {
        let changed = ConnectionLimits {
            timeout_ms: self.timeout_ms.unwrap_or(limits.timeout_ms),
            max_bytes: self.max_bytes.unwrap_or(limits.max_bytes),
            concurrent: self.concurrent.unwrap_or(limits.concurrent),
            per_second: self.per_second.unwrap_or(limits.per_second),
            burst: self.burst.unwrap_or(limits.burst),
            poll_ms: self.poll_ms.unwrap_or(limits.poll_ms),
        };
        changed.check().map(|()| changed)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            timeout_ms: 5_000,
            max_bytes: 4 << 20,
            concurrent: 16,
            per_second: 50,
            burst: 100,
            poll_ms: 30_000,
        }
    }
}

impl ConnectionLimits {
    /// The deadline of a fetch.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.into())
    }

    /// The time between two polls of the same content.
    pub fn poll(&self) -> Duration {
        Duration::from_millis(self.poll_ms.into())
    }

    fn check(&self) -> Result<(), Fault> {
        let most_units = u64::from(Rate::MAX);
        let members = [
            ("timeoutMs", self.timeout_ms.into(), 1..=120_000),
            ("maxBytes", self.max_bytes, 1..=64 << 20),
            ("concurrent", self.concurrent.into(), 1..=1_024),
            ("perSecond", self.per_second.into(), 1..=most_units),
            ("burst", self.burst.into(), 1..=most_units),
            ("pollMs", self.poll_ms.into(), 1_000..=86_400_000),
        ];
        match members.into_iter().find(|(_, value, range)| !range.contains(value)) {
            None => Ok(()),
            Some((name, _, range)) => {
                let (least, most) = range.into_inner();
                Err(Fault::invalid_params(format!("limits.{name} must be from {least} to {most}")))
            }
        }
    }
}

impl Fingerprint for StoredConnection {
    /// Of a secret the time at which it was set, not its value: a hash of it would confirm a guess.
    fn fingerprint(&self) -> Digest {
        let Self { uid, slug, kind, tenants, settings, secrets, limits, enabled, .. } = self;
        let tenants: Option<Vec<_>> = match tenants {
            Tenants::All => None,
            Tenants::Only(tenants) => Some(tenants.values().collect()),
        };
        let set = |secret: &StoredSecret| secret.updated_at.unix_timestamp_nanos().to_string();
        let secrets: Vec<_> = secrets.iter().map(|(name, secret)| (name, set(secret))).collect();
        Parts::default()
            .part(uid.0)
            .part(slug.as_str())
            .part(kind.as_str())
            .json(&tenants)
            .json(settings)
            .json(&secrets)
            .json(limits)
            .json(enabled)
            .digest()
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionLimits;

    #[test]
    fn limits_out_of_range_are_refused_by_name() {
        let default = ConnectionLimits::default();
        assert_eq!(default.check(), Ok(()));
        for (limits, expected) in [
            (ConnectionLimits { timeout_ms: 0, ..default }, "limits.timeoutMs must be from 1 to 120000"),
            (
                ConnectionLimits { max_bytes: (64 << 20) + 1, ..default },
                "limits.maxBytes must be from 1 to 67108864",
            ),
            (ConnectionLimits { concurrent: 1_025, ..default }, "limits.concurrent must be from 1 to 1024"),
            (ConnectionLimits { per_second: 0, ..default }, "limits.perSecond must be from 1 to 1000000"),
            (ConnectionLimits { burst: 1_000_001, ..default }, "limits.burst must be from 1 to 1000000"),
            (ConnectionLimits { poll_ms: 999, ..default }, "limits.pollMs must be from 1000 to 86400000"),
        ] {
            assert_eq!(limits.check().map_err(|fault| fault.to_string()), Err(expected.to_owned()));
        }
    }
}
