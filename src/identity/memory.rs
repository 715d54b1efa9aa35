//! The memory of this replica for credentials, tenants and slugs.

use std::sync::Arc;

use moka::sync::Cache;
use quick_cache::sync::Cache as IdCache;

use super::directory::{Directory, DirectoryVersion};
use super::grant::Grant;
use super::issued_keys::IssuedKeys;
use super::limits::MemoryLimits;
use super::tenant_access::TenantAccess;
use crate::cache::{Cell, CellMap, CellSet, ScopeCell};
use crate::model::ids::TenantId;
use crate::model::key::KeyHash;
use crate::model::scope::{Revision, Scope};

/// The maximum number of keys whose tenant is cached.
const KNOWN_KEYS: usize = 100_000;

/// The cache key of a token.
pub(super) type TokenHash = [u8; 32];

/// What a token grants, as of a version of the directory.
#[derive(Debug, Clone)]
pub(super) struct KnownToken {
    pub(super) grant: Arc<Grant>,
    pub(super) version: Option<DirectoryVersion>,
}

/// The memory of [`Identity`](super::Identity).
#[derive(Debug)]
pub struct IdentityMemory {
    pub(super) directory: Arc<Cell<Directory>>,
    pub(super) tenants: CellMap<Cell<TenantAccess>>,
    /// The tenant of each key, and the keys that do not exist. Both remain valid, since keys are random and never
    /// change their tenant. Two caches, so that forged keys do not evict issued ones.
    pub(super) key_tenants: IdCache<KeyHash, TenantId>,
    pub(super) unknown_keys: IdCache<KeyHash, ()>,
    pub(super) issued: IssuedKeys,
    pub(super) tokens: Cache<TokenHash, KnownToken>,
}

impl IdentityMemory {
    /// Creates an empty memory.
    pub fn new(limits: MemoryLimits) -> Self {
        Self {
            directory: Arc::new(Cell::new(Scope::GATEWAY)),
            tenants: CellMap::new(limits.tenants),
            key_tenants: IdCache::new(KNOWN_KEYS),
            unknown_keys: IdCache::new(limits.unknown_keys),
            issued: IssuedKeys::default(),
            tokens: Cache::new(limits.tokens),
        }
    }

    /// The cell of a tenant's access.
    pub(super) fn tenant(&self, tenant: TenantId) -> Arc<Cell<TenantAccess>> {
        self.tenants.get_or_create(tenant, Cell::new)
    }
}

impl CellSet for IdentityMemory {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        if scope == Scope::GATEWAY {
            Some(Arc::clone(&self.directory) as Arc<dyn ScopeCell>)
        } else {
            self.tenants.cell(scope)
        }
    }

    fn raise(&self, scope: Scope, revision: Revision) -> Option<bool> {
        if scope == Scope::GATEWAY {
            return Some(self.directory.raise(revision));
        }
        // The scope may be a tenant's, whether its cell is in memory or not: keys may have been issued.
        self.issued.touch();
        self.tenants.raise(scope, revision)
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        let gateway = self.directory.applied().map(|applied| (Scope::GATEWAY, applied));
        gateway.into_iter().chain(self.tenants.revisions()).collect()
    }

    fn clear(&self) {
        self.directory.restart();
        self.tenants.clear();
        self.key_tenants.clear();
        self.unknown_keys.clear();
        self.issued.reload();
        self.tokens.invalidate_all();
    }
}
