//! The memory of this replica for credentials, tenants and slugs. The directory (which agent and which tenant a slug names) is
//! part of the gateway's scope.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::grant::{AccessDecision, DecisionKey, Grant};
use super::issued_keys::IssuedKeys;
use super::tenant_access::TenantAccess;
use crate::cache::{Cell, CellMap, CellSet, Invalidate, MemoryBudget, ScopeCell, WeighedCache};
use crate::model::agent::TenantAddress;
use crate::model::allocated::{allocated, table, texts};
use crate::model::ids::{AgentId, TenantId};
use crate::model::key::KeyHash;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};

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
    pub(super) key_tenants: Arc<WeighedCache<KeyHash, TenantId>>,
    pub(super) unknown_keys: Arc<WeighedCache<KeyHash, ()>>,
    pub(super) issued: IssuedKeys,
    pub(super) tokens: Arc<WeighedCache<TokenHash, KnownToken>>,
    /// The last decisions, whether they still hold or not.
    pub(super) decisions: Arc<WeighedCache<DecisionKey, AccessDecision>>,
}

impl IdentityMemory {
    /// Creates an empty memory within `budget`.
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self {
            directory: Arc::new(Cell::new(Scope::GATEWAY, budget.pin("directory"))),
            tenants: CellMap::new(budget, "tenants"),
            key_tenants: WeighedCache::new(budget, "keys", |_| false),
            unknown_keys: WeighedCache::new(budget, "unknown_keys", |()| false),
            issued: IssuedKeys::new(budget.pin("issued_keys")),
            tokens: WeighedCache::new(budget, "tokens", |_| false),
            decisions: WeighedCache::new(budget, "decisions", |_| false),
        }
    }

    /// The cell of a tenant's access.
    pub(super) fn tenant(&self, tenant: TenantId) -> Arc<Cell<TenantAccess>> {
        self.tenants.get_or_create(tenant, Some(tenant), Cell::new)
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

    fn decides_access(&self) -> bool {
        true
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
        self.tokens.clear();
        self.decisions.clear();
    }
}

/// The maximum number of cached unknown slugs; above it all of them are dropped.
const MAX_UNKNOWN_SLUGS: usize = 10_000;

/// The agents and tenants that slugs name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    agents: SlugTable<(TenantId, AgentId)>,
    tenants: SlugTable<TenantAddress>,
    version: DirectoryVersion,
}

/// Changes with each change of the directory: derived facts are valid while the version is the same.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryVersion(Arc<()>);

impl PartialEq for DirectoryVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Debug)]
struct SlugTable<T> {
    known: HashMap<Box<str>, T>,
    unknown: HashSet<Box<str>>,
    /// The memory of the slugs.
    slugs: usize,
}

impl<T> Default for SlugTable<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), unknown: HashSet::new(), slugs: 0 }
    }
}

impl<T: Copy> SlugTable<T> {
    fn find(&self, slug: &str) -> Option<Option<T>> {
        let known = self.known.get(slug).map(|address| Some(*address));
        known.or_else(|| self.unknown.contains(slug).then_some(None))
    }

    fn keep(&mut self, slug: &str, address: Option<T>) {
        if self.unknown.len() >= MAX_UNKNOWN_SLUGS {
            self.drop_unknown();
        }
        let is_new = match address {
            Some(address) => self.known.insert(slug.into(), address).is_none(),
            None => self.unknown.insert(slug.into()),
        };
        self.slugs += if is_new { allocated(slug.len()) } else { 0 };
    }

    fn drop(&mut self, slug: &str) {
        let dropped = [self.known.remove(slug).is_some(), self.unknown.remove(slug)];
        self.slugs -= dropped.into_iter().filter(|dropped| *dropped).count() * allocated(slug.len());
    }

    fn drop_unknown(&mut self) {
        self.slugs -= texts(self.unknown.drain().collect::<Vec<_>>().iter().map(|slug| &**slug));
    }

    fn drop_known(&mut self, is_dropped: impl Fn(&T) -> bool) {
        let dropped = self.known.extract_if(|_, address| is_dropped(address));
        self.slugs -= dropped.map(|(slug, _)| allocated(slug.len())).sum::<usize>();
    }

    fn heap(&self) -> usize {
        table::<(Box<str>, T)>(self.known.capacity())
            + table::<Box<str>>(self.unknown.capacity())
            + self.slugs
    }
}

impl Directory {
    /// The agent that a slug names; `None` if that is not cached.
    pub(super) fn agent(&self, slug: &str) -> Option<Option<(TenantId, AgentId)>> {
        self.agents.find(slug)
    }

    /// The tenant that a slug names; `None` if that is not cached.
    pub(super) fn tenant(&self, slug: &str) -> Option<Option<TenantAddress>> {
        self.tenants.find(slug)
    }

    /// Caches which agent a slug names, if any.
    pub(super) fn keep_agent(&mut self, slug: &str, address: Option<(TenantId, AgentId)>) {
        self.agents.keep(slug, address);
    }

    /// Caches which tenant a slug names, if any.
    pub(super) fn keep_tenant(&mut self, slug: &str, address: Option<TenantAddress>) {
        self.tenants.keep(slug, address);
    }

    /// The current version.
    pub(super) fn version(&self) -> DirectoryVersion {
        self.version.clone()
    }
}

impl Invalidate for Directory {
    fn invalidate(&mut self, change: &Change) {
        match change.kind {
            ChangeKind::Slug => {
                self.agents.drop(change.subject.as_str());
            }
            // The change names the tenant's uid, not its slug: any unknown slug may be its own.
            ChangeKind::Tenant => {
                let uid = change.subject.parse().ok().map(TenantId);
                self.tenants.drop_known(|tenant| Some(tenant.uid) == uid);
                self.tenants.drop_unknown();
            }
            ChangeKind::Unknown => *self = Self::default(),
            _ => return,
        }
        self.version = DirectoryVersion::default();
    }

    fn heap(&self) -> usize {
        self.agents.heap() + self.tenants.heap()
    }
}
