//! Scans of mounts: what a source lists is compared with what is recorded, and each difference is a change of the agent.
//!
//! Differences are written in bounded transactions, each one revision. Until everything was listed once, a revision is one
//! change, and they follow each other; later each file is a change, and a mount has at most one revision a second. Each
//! transaction compares and sets the revision that last changed the mount's files and requires the lease of the connection,
//! so that of two scans only one writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use content_source::{Entry, FetchError, Kind, Pace};
use file_tree::{Difference, differences, encode};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until, timeout};

use super::extent::ScanExtent;
use crate::catalog::Catalog;
use crate::catalog::snapshot::view::View;
use crate::model::audience::Audience;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::mount::{Mount, MountEntry, MountState, MountStatus};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::variant::Variant;
use crate::sources::Connection;
use crate::store::leases::ConnectionLease;
use crate::store::mount_entries::ScannedMount;
use crate::store::write::Write;

/// How long a scan may take.
const SCAN_TIMEOUT: Duration = Duration::from_mins(5);
/// The shortest time between two revisions of a mount that was listed.
const BETWEEN_REVISIONS: Duration = Duration::from_secs(1);
/// The maximum number of files that one transaction changes.
const MAX_CHANGED: usize = 20_000;
/// How many times as many names as a mount may list files are looked at by one scan.
const MAX_SEEN: usize = 10;

/// A mount whose connection this replica has the lease of.
#[derive(Debug, Clone)]
pub(super) struct Scan {
    pub(super) catalog: Arc<Catalog>,
    pub(super) mount: ScannedMount,
    pub(super) lease: ConnectionLease,
}

/// The last write of the scans of a mount.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// When it was.
    at: Option<Instant>,
    /// The revision that last changed what is listed, if it is known.
    revision: Option<Revision>,
}

/// What is listed of a mount.
#[derive(Debug, Clone, Copy)]
struct Listed {
    /// The revision that last changed it.
    revision: Revision,
    /// The number of files.
    count: usize,
    /// Whether a scan has listed everything.
    is_whole: bool,
}

/// How a scan ended.
#[derive(Debug)]
pub(super) enum ScanEnd {
    /// The files are recorded as they were found.
    Done(Arc<Connection>),
    /// The source failed, or may not be used.
    Failed,
    /// Only a part was scanned, and everything has to be.
    Incomplete,
    /// The mount or the lease is gone.
    Gone,
}

/// What a scan found, by the encoded path.
type FoundEntries = BTreeMap<String, MountEntry>;
/// A file that differs from what is recorded.
type ChangedEntry = Difference<String, MountEntry>;

impl Scan {
    /// Scans a part of the mount. A scan on request uses nothing that the source was asked before the request; others may use
    /// what was asked for another mount in the same round of polls.
    ///
    /// # Errors
    /// Those of the database.
    pub(super) async fn run(
        &self,
        extent: &ScanExtent,
        requested: Option<Instant>,
        last: &mut Last,
    ) -> Result<ScanEnd, Fault> {
        let Self { catalog, mount, .. } = self;
        let AgentRef { tenant, uid } = mount.agent;
        let admitted = catalog.fetcher.admit_scan(tenant, mount.connection).await?;
        let scanned = match last.revision.take() {
            Some(revision) => Some((revision, true)),
            None => catalog.store.scanned(mount).await?,
        };
        let Some((scanned_at, was_listed)) = scanned else { return Ok(ScanEnd::Gone) };
        let snapshot = catalog.snapshot_of(Payer::Tenant(tenant), tenant, uid).await?;
        // With everything that was written before.
        if snapshot.revision < scanned_at {
            return Err(Fault::StorageUnavailable);
        }
        let view = View::unfiltered(snapshot);
        let Some(known) = view.get::<Mount>(mount.name.as_str()).cloned() else { return Ok(ScanEnd::Gone) };
        if known.tree_id != mount.tree {
            return Ok(ScanEnd::Gone);
        }
        let known_at = Listed { revision: scanned_at, count: view.listed(&known), is_whole: was_listed };
        let scanned = match admitted {
            Ok((connection, pace)) => {
                let from = (&*connection, pace.as_ref());
                let found = timeout(SCAN_TIMEOUT, self.found(&known, from, extent, requested)).await;
                found.unwrap_or(Err(FetchError::Timeout)).map(|found| (connection, found))
            }
            Err(FetchError::NotAllowed) => return self.unlist(&view, &known, known_at, last).await,
            Err(error) => Err(error),
        };
        let (connection, (found, is_complete)) = match scanned {
            Ok(scanned) => scanned,
            Err(error) => {
                let now = catalog.system.clock.now();
                catalog.store.record_failed_scan(mount, error.as_str(), now).await?;
                return Ok(ScanEnd::Failed);
            }
        };
        let count = known_at.count;
        let is_all = *extent == ScanExtent::All;
        let (of, part) = (Arc::clone(&known), extent.clone());
        let changed = tokio::task::spawn_blocking(move || changed(&view, &of, &part, found)).await;
        let mut changed = changed.map_err(|error| Fault::Internal(error.to_string()))?;
        changed.retain(|change| !self.is_watched(&known, change, requested.is_some()));
        let appeared = changed.iter().filter(|change| matches!(change, Difference::Appeared(..))).count();
        let vanished = changed.iter().filter(|change| matches!(change, Difference::Vanished(_))).count();
        let after = (count + appeared).saturating_sub(vanished);
        if !is_all && (!is_complete || after > catalog.limits.mount_entries) {
            return Ok(ScanEnd::Incomplete);
        }
        let Some(scanned_at) = self.write(&known, known_at, changed, last).await? else {
            return Ok(ScanEnd::Gone);
        };
        last.revision = Some(scanned_at);
        if is_all || after != count {
            let is_listed = if is_all { is_complete } else { count < catalog.limits.mount_entries };
            let state = if is_listed { MountState::Ready } else { MountState::Degraded };
            let why = (!is_listed).then(|| FetchError::TooLarge.as_str());
            self.record(state, after, why).await?;
        }
        Ok(ScanEnd::Done(connection))
    }

    /// Lists nothing: the connection is disabled, or the tenant may no longer use it. Reads of the files are refused, so their
    /// names are no longer answered either.
    async fn unlist(
        &self,
        view: &View,
        mount: &Mount,
        listed: Listed,
        last: &mut Last,
    ) -> Result<ScanEnd, Fault> {
        let gone = view.entries(mount).map(|(suffix, _)| Difference::Vanished(suffix.to_string()));
        if self.write(mount, listed, gone.collect(), last).await?.is_none() {
            return Ok(ScanEnd::Gone);
        }
        self.record(MountState::Failed, 0, Some(FetchError::NotAllowed.as_str())).await?;
        Ok(ScanEnd::Failed)
    }

    /// The files that the source lists, at most as many as a mount may list: the first in the order of their URIs. And
    /// whether these are all.
    async fn found(
        &self,
        mount: &Mount,
        (connection, pace): (&Connection, Option<&Arc<Pace>>),
        extent: &ScanExtent,
        requested: Option<Instant>,
    ) -> Result<(FoundEntries, bool), FetchError> {
        let most = self.catalog.limits.mount_entries;
        let now = self.catalog.system.clock.now();
        let source = connection.source(self.mount.agent.tenant)?;
        let seen = AtomicUsize::new(0);
        let include = |path: &str| {
            let is_included = extent.includes(&mount.filter, path);
            // An object has the directories above it in its name.
            if connection.kind != Kind::S3 || !is_included || !path.ends_with('/') {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            is_included
        };
        // A repository is asked once in a round what its reference names.
        let round = || self.catalog.fetcher.round(connection.uid, connection.limits.poll()).began;
        let since =
            (connection.kind == Kind::Git).then(|| requested.map_or_else(round, |at| at.max(round())));
        let since = since.map(Instant::into_std);
        let mut batches = source.scan(&mount.tree, &include, since, pace);
        let (mut found, mut is_complete) = (FoundEntries::new(), true);
        while let Some(batch) = batches.next().await {
            for Entry { path, size, modified, validator } in batch? {
                let suffix = encode(&path);
                // One whose URI would be too long, or that is written otherwise, cannot be read.
                if mount.uri_of(&suffix).is_none() {
                    continue;
                }
                let mut digest = [0; 16];
                digest.copy_from_slice(&Sha256::digest(&validator.0)[..16]);
                let modified = modified.unwrap_or(now);
                let entry = MountEntry { size, modified, validator: digest, revision: Revision(0) };
                found.insert(suffix, entry);
                if found.len() > most {
                    found.pop_last();
                    is_complete = false;
                }
            }
            if seen.load(Ordering::Relaxed) >= most.saturating_mul(MAX_SEEN) {
                is_complete = false;
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok((found, is_complete))
    }

    /// Whether a file changed whose content is watched: what counts is whether that differs. What a scan on request finds is
    /// looked at at once, and not when it is polled.
    fn is_watched(&self, mount: &Mount, change: &ChangedEntry, on_request: bool) -> bool {
        let Difference::Changed(suffix, _) = change else { return false };
        let uri = ResourceUri::parse(&format!("{}{suffix}", mount.uri));
        uri.is_ok_and(|uri| {
            let subject = (self.mount.agent, Variant::by(mount.name.as_str(), &uri));
            let is_watched = self.catalog.watched_files.contains(&subject);
            if is_watched && on_request {
                self.catalog.watched_files.look(subject);
            }
            is_watched
        })
    }

    /// Writes differences from what is listed. Returns the revision of the last of them; `None` if the mount or the lease is
    /// gone, or another scan wrote.
    async fn write(
        &self,
        mount: &Mount,
        mut listed: Listed,
        changed: Vec<ChangedEntry>,
        last_write: &mut Last,
    ) -> Result<Option<Revision>, Fault> {
        let batches: Vec<_> = changed.chunks(MAX_CHANGED).map(<[_]>::to_vec).collect();
        let last = batches.len().saturating_sub(1);
        for (number, batch) in batches.into_iter().enumerate() {
            if let Some(at) = last_write.at.filter(|_| listed.is_whole) {
                sleep_until(at + BETWEEN_REVISIONS).await;
            }
            last_write.at = Some(Instant::now());
            listed.count += batch.len();
            let (scan, uri) = (self.clone(), mount.uri.to_string());
            let work = async move { scan.write_batch(&uri, listed, &batch, number == last).await };
            match self.catalog.writer.detached(work).await? {
                Some(revision) => listed.revision = revision,
                None => return Ok(None),
            }
            if !listed.is_whole && number < last {
                self.record(MountState::Scanning, listed.count, None).await?;
            }
        }
        Ok(Some(listed.revision))
    }

    /// The revision that was made.
    async fn write_batch(
        &self,
        uri: &str,
        listed: Listed,
        batch: &[ChangedEntry],
        is_last: bool,
    ) -> Result<Option<Revision>, Fault> {
        let Self { catalog, mount, lease } = self;
        let (agent, scope) = (mount.agent, Scope::from(mount.agent.uid));
        let work = async |write: &mut Write| {
            let Some(revision) = write.lock(scope).await? else { return Ok(None) };
            // It is held until the commit.
            if !write.has_lease(lease).await? {
                return Ok(None);
            }
            let Some(labels) = write.claim_scan(mount, listed.revision, revision).await? else {
                return Ok(None);
            };
            let audience = Audience::of(&labels);
            let (mut put, mut gone) = (Vec::new(), Vec::new());
            for change in batch {
                let (kind, suffix) = match change {
                    Difference::Appeared(suffix, entry) => {
                        put.push((suffix, MountEntry { revision, ..*entry }));
                        (ChangeKind::EntryAdded, suffix)
                    }
                    Difference::Changed(suffix, entry) => {
                        put.push((suffix, MountEntry { revision, ..*entry }));
                        (ChangeKind::EntryChanged, suffix)
                    }
                    Difference::Vanished(suffix) => {
                        gone.push(suffix);
                        (ChangeKind::EntryRemoved, suffix)
                    }
                };
                // Those of the first scan are one change.
                if listed.is_whole || kind != ChangeKind::EntryAdded {
                    let subject = format!("{} {uri}{suffix}", mount.name);
                    write.change_for(audience.clone(), scope, kind, subject);
                }
            }
            if !listed.is_whole {
                write.change_for(audience.clone(), scope, ChangeKind::MountListed, mount.name.as_str());
                // For those who are subscribed to some of them.
                if is_last {
                    write.change_for(audience, scope, ChangeKind::MountServed, uri);
                }
            }
            let path = |suffix: &String| file_tree::decode(suffix).unwrap_or_default();
            let put: Vec<_> = put.into_iter().map(|(suffix, entry)| (path(suffix), entry)).collect();
            let gone: Vec<_> = gone.into_iter().map(path).collect();
            write.put_entries(agent, mount.tree, &put).await?;
            write.delete_entries(agent, mount.tree, &gone).await?;
            Ok(Some(revision))
        };
        catalog.writer.transact(scope, &AuditedWrite::UNAUDITED, work).await
    }

    async fn record(&self, state: MountState, entries: usize, reason: Option<&str>) -> Result<(), Fault> {
        let is_over = state != MountState::Scanning;
        let status = MountStatus {
            state,
            entries: entries as u64,
            checked_at: is_over.then(|| self.catalog.system.clock.now()),
            reason: reason.map(str::to_owned),
        };
        Ok(self.catalog.store.record_scan(&self.mount, &status).await?)
    }
}

/// The differences of what a scan of a part found from what is listed of it.
fn changed(view: &View, mount: &Mount, extent: &ScanExtent, found: FoundEntries) -> Vec<ChangedEntry> {
    let in_extent = |suffix: &str| match extent {
        ScanExtent::All => true,
        ScanExtent::Paths(_) => file_tree::decode(suffix).is_some_and(|path| extent.contains(&path)),
    };
    let listed = view.entries(mount).filter(|(suffix, _)| in_extent(suffix));
    let listed = listed.map(|(suffix, entry)| (suffix.to_string(), entry.validator));
    differences(listed, found, |known, found| *known == found.validator).collect()
}
