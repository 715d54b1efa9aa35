//! Authentication and authorization: tenants, agents, keys, access tokens, the slug directory and the access decision.
//!
//! [`Identity`] verifies a credential ([`identify`](Identity::identify)), decides whether it may use an agent
//! ([`admit`](Identity::admit)), and writes tenants, agents and keys. Verified facts are cached in an
//! [`IdentityMemory`] by the cache rule ([`crate::cache`]); they are part of a tenant's scope, the slug directory is
//! part of the gateway's.

pub mod access;
pub mod agents;
pub mod explain;
pub mod grant;
mod issued_keys;
mod key_activity;
pub mod keys;
mod limits;
mod look_up;
mod look_up_limit;
mod maintenance;
mod memory;
mod tenant_access;
pub mod tenants;
mod token_grants;
pub mod tokens;

use std::sync::Arc;

use self::key_activity::KeyActivity;
pub use self::limits::IdentityLimits;
use self::look_up_limit::LookUpLimit;
pub use self::memory::IdentityMemory;
use self::tokens::Tokens;
use crate::cache::{Loader, ScopeMap, Writer};
use crate::feed::FeedHealth;
use crate::model::system::{Random, System};
use crate::store::Store;

/// Verifies credentials, decides about access, and writes tenants, agents and keys.
#[derive(Debug)]
pub struct Identity {
    store: Store,
    system: System,
    loader: Arc<Loader>,
    feed_health: Arc<FeedHealth>,
    writer: Arc<Writer>,
    scopes: Arc<ScopeMap>,
    memory: Arc<IdentityMemory>,
    tokens: Arc<Tokens>,
    look_up_limit: LookUpLimit,
    key_activity: KeyActivity,
    limits: IdentityLimits,
}

/// Counters of [`Identity`], for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityStats {
    /// Look-ups of keys in the database.
    pub key_look_ups: u64,
    /// Keys that expire within two weeks; `None` until counted.
    pub expiring_keys: Option<u64>,
}

impl Identity {
    /// Creates the service over `memory`, which `scopes` must contain.
    pub fn new(
        (store, system): (Store, System),
        (loader, writer, scopes): (Arc<Loader>, Arc<Writer>, Arc<ScopeMap>),
        (memory, feed_health): (Arc<IdentityMemory>, Arc<FeedHealth>),
        tokens: Arc<Tokens>,
        limits: IdentityLimits,
    ) -> Self {
        let look_up_limit = LookUpLimit::new(limits.unknown_keys_per_second);
        let key_activity = KeyActivity::default();
        Self {
            store,
            system,
            loader,
            feed_health,
            writer,
            scopes,
            memory,
            tokens,
            look_up_limit,
            key_activity,
            limits,
        }
    }

    /// The current time.
    pub fn now(&self) -> time::OffsetDateTime {
        self.system.clock.now()
    }

    /// The source of random bytes.
    pub fn random(&self) -> &dyn Random {
        self.system.random.as_ref()
    }

    /// The bytes of the parts of memory that are never evicted, by name.
    pub fn pinned_bytes(&self) -> [(&'static str, usize); 2] {
        [("directory", self.memory.directory.charged()), ("issued_keys", self.memory.issued.charged())]
    }

    /// Returns the counters.
    pub fn stats(&self) -> IdentityStats {
        IdentityStats { key_look_ups: self.store.key_lookups(), expiring_keys: self.key_activity.expiring() }
    }
}
