//! A look at watched content: it is fetched, and a change is a revision of the agent.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use content_source::{Content, Kind, Location, Path, Validator};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::catalog::snapshot::view::{Answering, View};
use crate::catalog::target::Target;
use crate::model::audience::Audience;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, ConnectionId};
use crate::model::resource::Resource;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::sources::{Missed, Polled};
use crate::store::found_contents::{FoundAt, FoundContents, size};
use crate::store::leases::ConnectionLease;
use crate::store::watched::Found;
use crate::store::watching::Subject;
use crate::store::write::Write;

/// What is known of watched content.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// What is recorded of it.
    pub(super) recorded: Option<Found>,
    /// What it is recorded of, as long as it is in memory: content that is unchanged is not hashed again.
    pub(super) contents: Option<Weak<[Content]>>,
}

/// Whether content is as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// It was not, and is recorded now.
    Changed,
    /// What it is compared with changed meanwhile.
    Open,
}

/// What a look at content found.
#[derive(Debug)]
pub(super) struct Looked {
    /// What is known of it now.
    pub(super) known: Known,
    pub(super) verdict: Verdict,
    /// What it was fetched from, and at which revision of the connection.
    pub(super) source: (Kind, Revision),
    /// Its path, if it has one.
    pub(super) path: Option<Path>,
    /// How often content of the connection is polled.
    pub(super) every: Duration,
}

/// How the record of a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// At this revision.
    Done(Revision),
    /// Another replica holds the lease.
    LeaseLost,
    /// Something else was recorded meanwhile, or the definition was written.
    Outdated,
}

impl Catalog {
    /// Fetches watched content, and makes a revision if it differs from what is recorded. `None` if it does not come from the
    /// connection any more, or the lease is lost.
    pub(super) async fn look(
        self: &Arc<Self>,
        lease: &ConnectionLease,
        subject: &Subject,
        known: &Known,
        stored: &StoredBytes,
    ) -> Result<Option<Looked>, Fault> {
        let (agent, uri) = subject;
        let AgentRef { tenant, uid } = *agent;
        let snapshot = self.snapshot_of(Payer::Tenant(tenant), tenant, uid).await?;
        let Ok(answering) = View::unfiltered(snapshot).answering(uri) else { return Ok(None) };
        let sourced = answering.sourced().filter(|_| !matches!(answering, Answering::Mounted(_)));
        let wanted = sourced.and_then(|sourced| sourced.wanted(*agent, Payer::Tenant(tenant)));
        let Some(wanted) = wanted.filter(|wanted| wanted.connection == lease.connection) else {
            return Ok(None);
        };
        let path = match &wanted.location {
            Location::Path { path, .. } => Some(path.clone()),
            Location::Statement { .. } => None,
        };
        let polled = self.fetcher.poll(wanted).await.map_err(|missed| match missed {
            Missed::NotFound => Fault::ResourceNotFound(uri.clone()),
            Missed::Fault(fault) => fault,
        })?;
        let Polled { source, every, .. } = polled;
        let weak = polled.contents.as_ref().map(Arc::downgrade);
        let is_same =
            known.contents.as_ref().zip(weak.as_ref()).is_some_and(|(known, found)| known.ptr_eq(found));
        let looked = |verdict, recorded, contents| {
            let known = Known { recorded, contents };
            Some(Looked { known, verdict, source, path, every })
        };
        if is_same && known.recorded.is_some() {
            return Ok(looked(Verdict::Same, known.recorded, weak));
        }
        let digest = digest(polled.contents.as_deref());
        if known.recorded.is_some_and(|recorded| recorded.digest == digest) {
            return Ok(looked(Verdict::Same, known.recorded, weak));
        }
        let found = Discovery::new(&polled, lease, stored);
        match self.record(lease, subject, &answering, (known.recorded, digest, found)).await? {
            Recorded::Done(revision) => {
                self.fetcher.carry(polled, revision);
                let fence = known.recorded.map_or(0, |recorded| recorded.fence) + 1;
                Ok(looked(Verdict::Changed, Some(Found { digest, fence }), weak))
            }
            Recorded::Outdated => {
                let recorded = self.store.found(*agent, uri).await?;
                Ok(looked(Verdict::Open, recorded, None))
            }
            Recorded::LeaseLost => Ok(None),
        }
    }

    /// Records what was found, and makes a revision, unless the lease is lost or a write was faster.
    async fn record(
        self: &Arc<Self>,
        lease: &ConnectionLease,
        (agent, uri): &Subject,
        answering: &Answering,
        (recorded, digest, found): (Option<Found>, ContentHash, Discovery),
    ) -> Result<Recorded, Fault> {
        let (catalog, agent, uri, lease) = (Arc::clone(self), *agent, uri.clone(), *lease);
        let (labels, revision) = match answering {
            Answering::Registered(resource, _) | Answering::Mounted(resource) => {
                (resource.labels.clone(), Some(resource.revision))
            }
            Answering::Rendered(found, _) => (found.template.labels.clone(), None),
        };
        self.writer
            .detached(async move {
                let work = || {
                    async |write: &mut Write| {
                        let (target, old) = Target::lock::<Resource>(write, agent, uri.as_str()).await?;
                        // The lease is held until the commit.
                        if !write.has_lease(&lease).await? {
                            return Ok(Recorded::LeaseLost);
                        }
                        let now = catalog.sources.clock.now();
                        if old.map(|old| old.revision) != revision
                            || !write.record_found((agent, &uri), recorded, digest, now).await?
                        {
                            return Ok(Recorded::Outdated);
                        }
                        found.store(write, (agent, uri.clone()), target.revision).await?;
                        write.touch_resource(agent, &uri, target.revision, now).await?;
                        let audience = Audience::of(&labels);
                        write.change_for(audience, target.scope, ChangeKind::ResourceTouched, uri.as_str());
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

    /// Whether something may be stored.
    pub(super) fn is_empty(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0
    }

    /// Adds to it unless the limit would be exceeded.
    fn reserve(&self, size: i64) -> bool {
        let added = |used: i64| used.checked_add(size).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
    }
}

/// Content that was found, to be stored for all replicas.
#[derive(Debug, Clone)]
struct Discovery {
    contents: Option<Arc<[Content]>>,
    validator: Option<Validator>,
    connection: ConnectionId,
    connected: Revision,
    fetched: Instant,
    ttl: Duration,
}

impl Discovery {
    /// Nothing is stored that would be too old at once, or too much.
    fn new(polled: &Polled, lease: &ConnectionLease, stored: &StoredBytes) -> Self {
        let worth = |contents: &&Arc<[Content]>| !polled.ttl.is_zero() && stored.reserve(size(contents));
        Self {
            contents: polled.contents.as_ref().filter(worth).cloned(),
            validator: polled.validator().cloned(),
            connection: lease.connection,
            connected: polled.source.1,
            fetched: polled.fetched(),
            ttl: polled.ttl,
        }
    }

    async fn store(&self, write: &mut Write, subject: Subject, revision: Revision) -> Result<(), Fault> {
        let Some(contents) = self.contents.as_deref() else { return Ok(()) };
        let at = FoundAt { connection: self.connection, connected: self.connected, revision };
        let found =
            FoundContents { contents, validator: self.validator.clone(), age: self.fetched.elapsed() };
        Ok(write.put_found_contents(&subject, at, &found, self.ttl).await?)
    }
}

/// A digest of contents; `None` if there are none.
fn digest(contents: Option<&[Content]>) -> ContentHash {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    for content in contents.into_iter().flatten() {
        part(content.name.as_deref().unwrap_or_default().as_bytes());
        part(content.mime_type.as_deref().unwrap_or_default().as_bytes());
        part(&content.bytes);
    }
    part(if contents.is_some() { b"" } else { b"missing" });
    ContentHash(hasher.finalize().into())
}
