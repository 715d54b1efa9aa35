//! The directory: which agent and which tenant a slug names now. Part of the gateway's scope.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use time::OffsetDateTime;

use super::Registry;
use super::cell::Held;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, Slug, TenantId};
use crate::model::scope::{Change, ChangeKind};
use crate::model::sources::FailPoint;

/// Slugs that name nothing, remembered until there are so many; then all are forgotten.
const MOST_UNKNOWN_SLUGS: usize = 10_000;

/// What slugs name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    agents: Names<(TenantId, AgentId)>,
    tenants: Names<TenantAddress>,
    edition: Edition,
}

/// Another one each time that something in the directory changes: what was made of it holds for as long as it is the
/// same.
#[derive(Debug, Clone, Default)]
pub(super) struct Edition(Arc<()>);

impl PartialEq for Edition {
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
    /// Whether a token of this age may be meant for the tenant. One that does not say its age may be meant for an earlier
    /// tenant of the slug, where there was one.
    pub(super) fn may_be_meant_by(&self, issued_at: Option<OffsetDateTime>) -> bool {
        issued_at.map_or(!self.recreated, |issued| issued >= self.created_at)
    }
}

#[derive(Debug)]
struct Names<T> {
    known: HashMap<Box<str>, T>,
    unknown: HashSet<Box<str>>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), unknown: HashSet::new() }
    }
}

impl<T: Copy> Names<T> {
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
    /// Keeps which agent a slug names, if any.
    pub(super) fn keep_agent(&mut self, slug: &str, address: Option<(TenantId, AgentId)>) {
        self.agents.keep(slug, address);
    }
}

impl Held for Directory {
    fn forget(&mut self, change: &Change) {
        match change.kind {
            ChangeKind::Slug => {
                self.agents.known.remove(change.subject.as_str());
                self.agents.unknown.remove(change.subject.as_str());
            }
            // Known by its uid, whose slug is not told: one that named nothing may be its own.
            ChangeKind::Tenant => {
                let uid = change.subject.parse().ok().map(TenantId);
                self.tenants.known.retain(|_, tenant| Some(tenant.uid) != uid);
                self.tenants.unknown.clear();
            }
            ChangeKind::Unknown => *self = Self::default(),
            _ => return,
        }
        self.edition = Edition::default();
    }
}

impl Registry {
    /// Which agent a slug names now. What is no slug is not looked up, and not remembered either.
    pub(super) async fn address(&self, slug: &str) -> Result<Option<(TenantId, AgentId)>, Fault> {
        if !Slug::is_slug(slug) {
            return Ok(None);
        }
        let found = self
            .find(
                &self.directory,
                |held| held.agents.find(slug),
                async || {
                    self.directory
                        .load(
                            &self.store,
                            &self.sources,
                            FailPoint::CacheFillRead,
                            async |view| view.agent_address(slug).await,
                            |held, address| held.keep_agent(slug, *address),
                        )
                        .await
                        .map(Some)
                },
            )
            .await?;
        Ok(found.flatten())
    }

    /// Which tenant a slug names now.
    pub(super) async fn tenant_address(&self, slug: &Slug) -> Result<Option<TenantAddress>, Fault> {
        let found = self
            .find(
                &self.directory,
                |held| held.tenants.find(slug.as_str()),
                async || {
                    self.directory
                        .load(
                            &self.store,
                            &self.sources,
                            FailPoint::CacheFillRead,
                            async |view| {
                                let found = view.tenant_address(slug).await?;
                                Ok(found.map(|(uid, created_at, recreated)| TenantAddress {
                                    uid,
                                    created_at,
                                    recreated,
                                }))
                            },
                            |held, address| held.tenants.keep(slug.as_str(), *address),
                        )
                        .await
                        .map(Some)
                },
            )
            .await?;
        Ok(found.flatten())
    }

    /// The present edition of the directory; `None` while nothing of it is held.
    pub(super) async fn edition(&self) -> Result<Option<Edition>, Fault> {
        self.find(&self.directory, |held| Some(held.edition.clone()), async || Ok(None)).await
    }
}
