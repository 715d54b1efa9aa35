//! The directory: which agent and which tenant a slug names. Part of the gateway's scope.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use time::OffsetDateTime;

use crate::cache::Invalidate;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::{Change, ChangeKind};

/// The maximum number of cached unknown slugs; above it all of them are dropped.
const MOST_UNKNOWN_SLUGS: usize = 10_000;

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

/// The tenant that a slug names, and since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct TenantAddress {
    pub(super) uid: TenantId,
    pub(super) created_at: OffsetDateTime,
    /// Whether another tenant had the slug before.
    pub(super) recreated: bool,
}

impl TenantAddress {
    /// Whether a token issued at this time can be meant for this tenant. One without a time of issue may be meant for
    /// an earlier tenant of the slug, if there was one.
    pub(super) fn accepts_token_issued_at(&self, issued_at: Option<OffsetDateTime>) -> bool {
        issued_at.map_or(!self.recreated, |issued| issued >= self.created_at)
    }
}

#[derive(Debug)]
struct SlugTable<T> {
    known: HashMap<Box<str>, T>,
    unknown: HashSet<Box<str>>,
}

impl<T> Default for SlugTable<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), unknown: HashSet::new() }
    }
}

impl<T: Copy> SlugTable<T> {
    fn find(&self, slug: &str) -> Option<Option<T>> {
        let known = self.known.get(slug).map(|address| Some(*address));
        known.or_else(|| self.unknown.contains(slug).then_some(None))
    }

    fn keep(&mut self, slug: &str, address: Option<T>) {
        if self.unknown.len() >= MOST_UNKNOWN_SLUGS {
            self.unknown.clear();
        }
        match address {
            Some(address) => {
                self.known.insert(slug.into(), address);
            }
            None => {
                self.unknown.insert(slug.into());
            }
        }
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
                self.agents.known.remove(change.subject.as_str());
                self.agents.unknown.remove(change.subject.as_str());
            }
            // The change names the tenant's uid, not its slug: any unknown slug may be its own.
            ChangeKind::Tenant => {
                let uid = change.subject.parse().ok().map(TenantId);
                self.tenants.known.retain(|_, tenant| Some(tenant.uid) != uid);
                self.tenants.unknown.clear();
            }
            ChangeKind::Unknown => *self = Self::default(),
            _ => return,
        }
        self.version = DirectoryVersion::default();
    }
}
