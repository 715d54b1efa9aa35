//! The record of watched content that changed, which is a revision of the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use content_source::{Content, Validator};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::catalog::snapshot::view::Answering;
use crate::catalog::target::Target;
use crate::catalog::template_set::Match;
use crate::model::audience::Audience;
use crate::model::audit::write::AuditedWrite;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, ConnectionId, ResourceUri, Slug};
use crate::model::mount::{Mount, TreeId};
use crate::model::resource::Resource;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::template::ResourceTemplate;
use crate::model::variant::Variant;
use crate::sources::Polled;
use crate::store::definitions::Table;
use crate::store::found_contents::{FoundAt, FoundContents, size};
use crate::store::leases::ConnectionLease;
use crate::store::watched::FoundDigest;
use crate::store::watching::WatchedSubject;
use crate::store::write::Write;

/// How the record of a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// At this revision.
    Done(Revision),
    /// Another replica holds the lease.
    LeaseLost,
    /// Something else was recorded meanwhile, or the definition was written.
    Outdated,
}

impl Catalog {
    /// Records what was found, and makes a revision, unless the lease is lost or a write was faster.
    pub(super) async fn record(
        self: &Arc<Self>,
        lease: &ConnectionLease,
        (agent, variant): &WatchedSubject,
        answering: &Answering,
        change: FoundChange,
    ) -> Result<Recorded, Fault> {
        let (catalog, agent, variant, lease) = (Arc::clone(self), *agent, variant.clone(), *lease);
        let (labels, expected) = (answering.labels().clone(), Expected::of(answering));
        let file = EntryUpdate::of(answering, &variant, change.contents.contents.as_deref());
        self.writer
            .detached(async move {
                let work = || {
                    async |write: &mut Write| {
                        let Some(target) = expected.lock(write, agent).await? else {
                            return Ok(Recorded::Outdated);
                        };
                        // The lease is held until the commit.
                        if !write.has_lease(&lease).await? {
                            return Ok(Recorded::LeaseLost);
                        }
                        let now = catalog.system.clock.now();
                        let FoundChange { previous_digest, digest, contents, subject } = &change;
                        if !write.record_found((agent, &variant), *previous_digest, *digest, now).await? {
                            return Ok(Recorded::Outdated);
                        }
                        contents.store(write, (agent, variant.clone()), target.revision).await?;
                        match (&variant.definition, &file) {
                            (None, _) => {
                                write.touch_resource(agent, &variant.uri, target.revision, now).await?;
                            }
                            (Some(_), Some(file)) => file.apply(write, agent, target.revision, now).await?,
                            (Some(_), None) => {}
                        }
                        let audience = Audience::of(&labels);
                        write.change_for(
                            audience,
                            target.scope,
                            ChangeKind::ResourceTouched,
                            subject.as_str(),
                        );
                        Ok(Recorded::Done(target.revision))
                    }
                };
                let scope = Scope::from(agent.uid);
                catalog.writer.transact_shared(scope, &AuditedWrite::UNAUDITED, work).await
            })
            .await
    }
}

/// The size of what is stored of a connection, and its limit.
#[derive(Debug)]
pub(super) struct StoredBytes {
    used: AtomicI64,
    limit: i64,
}

impl StoredBytes {
    pub(super) fn new(limit: u64) -> Self {
        Self { used: AtomicI64::new(0), limit: i64::try_from(limit).unwrap_or(i64::MAX) }
    }

    pub(super) fn set(&self, used: i64) {
        self.used.store(used, Ordering::Relaxed);
    }

    /// Whether nothing is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0
    }

    /// Adds to it unless the limit would be exceeded.
    fn reserve(&self, size: i64) -> bool {
        let added = |used: i64| used.checked_add(size).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
    }
}

/// Contents that were found, to be stored for all replicas.
#[derive(Debug, Clone)]
pub(super) struct SharedContents {
    /// `None` if they are not stored, or there are none.
    contents: Option<Arc<[Content]>>,
    validator: Option<Validator>,
    connection: ConnectionId,
    connection_revision: Revision,
    fetched: Instant,
    ttl: Duration,
}

impl SharedContents {
    /// Contents are stored only if their time to live is not 0 and they fit into `stored`.
    pub(super) fn new(polled: &Polled, lease: &ConnectionLease, stored: &StoredBytes) -> Self {
        let worth = |contents: &&Arc<[Content]>| !polled.ttl.is_zero() && stored.reserve(size(contents));
        Self {
            contents: polled.contents.as_ref().filter(worth).cloned(),
            validator: polled.validator().cloned(),
            connection: lease.connection,
            connection_revision: polled.source.1,
            fetched: polled.fetched(),
            ttl: polled.ttl,
        }
    }

    async fn store(
        &self,
        write: &mut Write,
        subject: WatchedSubject,
        revision: Revision,
    ) -> Result<(), Fault> {
        let Some(contents) = self.contents.as_deref() else { return Ok(()) };
        let at =
            FoundAt { connection: self.connection, connection_revision: self.connection_revision, revision };
        let found =
            FoundContents { contents, validator: self.validator.clone(), age: self.fetched.elapsed() };
        Ok(write.put_found_contents(&subject, at, &found, self.ttl).await?)
    }
}

/// Content that differs from what is recorded.
#[derive(Debug)]
pub(super) struct FoundChange {
    /// What was recorded before; `None` if nothing was.
    pub(super) previous_digest: Option<FoundDigest>,
    pub(super) digest: ContentHash,
    pub(super) contents: SharedContents,
    /// The subject of the change: the URI, unless another definition answers it to some callers.
    pub(super) subject: String,
}

/// The definition that content was fetched for, at the revision at which it was.
#[derive(Debug)]
enum Expected {
    Resource(ResourceUri, Revision),
    Mount(Slug, Revision),
    Template(String, Revision),
}

impl Expected {
    fn of(answering: &Answering) -> Self {
        match answering {
            Answering::Registered(resource, _) => Self::Resource(resource.uri.clone(), resource.revision),
            Answering::Mounted(_, mount, _) => Self::Mount(mount.name.clone(), mount.revision),
            Answering::Rendered(Match { template, .. }, _) => {
                Self::Template(template.uri_template.as_str().to_owned(), template.revision)
            }
        }
    }

    /// Locks the agent; `None` if the definition was written since.
    async fn lock(&self, write: &mut Write, agent: AgentRef) -> Result<Option<Target>, Fault> {
        match self {
            Self::Resource(uri, at) => Self::locked::<Resource>(write, agent, uri.as_str(), *at).await,
            Self::Mount(name, at) => Self::locked::<Mount>(write, agent, name.as_str(), *at).await,
            Self::Template(text, at) => Self::locked::<ResourceTemplate>(write, agent, text, *at).await,
        }
    }

    async fn locked<K: Table>(
        write: &mut Write,
        agent: AgentRef,
        key: &str,
        at: Revision,
    ) -> Result<Option<Target>, Fault> {
        let (target, now) = Target::lock::<K>(write, agent, key).await?;
        Ok(now.is_some_and(|now| now.revision() == at).then_some(target))
    }
}

/// What changes in the list of the files of a mount.
#[derive(Debug)]
struct EntryUpdate {
    tree: TreeId,
    path: String,
    size: u64,
    modified: Option<OffsetDateTime>,
}

impl EntryUpdate {
    /// `None` for what is no file of a mount.
    fn of(answering: &Answering, variant: &Variant, contents: Option<&[Content]>) -> Option<Self> {
        let Answering::Mounted(_, mount, _) = answering else { return None };
        let (_, path) = mount.path_of(variant.uri.as_str())?;
        let [content] = contents? else { return None };
        let (size, modified) = (content.bytes.len() as u64, content.modified);
        Some(Self { tree: mount.tree_id, path, size, modified })
    }

    async fn apply(
        &self,
        write: &mut Write,
        agent: AgentRef,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), Fault> {
        let modified = self.modified.unwrap_or(now);
        Ok(write.touch_entry((agent, self.tree, &self.path), (self.size, modified), revision).await?)
    }
}
