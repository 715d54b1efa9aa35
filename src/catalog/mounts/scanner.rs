//! Scans the mounts of the connections whose leases this replica holds: when notified by the source, when a hook requests it,
//! and now and then.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use content_source::{ChangeHint, Kind};
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::extent::ScanExtent;
use super::scan::{Last, Scan, ScanEnd};
use crate::cache::FairSemaphore;
use crate::catalog::Catalog;
use crate::catalog::snapshot::view::View;
use crate::model::backoff::Backoff;
use crate::model::caller::Payer;
use crate::model::ids::TenantId;
use crate::model::mount::Mount;
use crate::model::scope::Revision;
use crate::sources::{Connection, Leases};
use crate::store::leases::ConnectionLease;
use crate::store::mount_entries::ScannedMount;

/// How often mounts are looked for, if anything of the gateway changed.
const REFRESH: Duration = Duration::from_secs(1);
/// How often they are looked for without a change, if there are any.
const REFRESH_IDLE: Duration = Duration::from_secs(30);
/// The maximum number of mounts; further ones are scanned once there are fewer.
const MAX_MOUNTS: i64 = 10_000;
/// The maximum number of mounts of one tenant. Past [`MAX_MOUNTS`], tenants have as many each as there are places for.
const MAX_OF_TENANT: i64 = MAX_MOUNTS / 4;
/// The maximum number of concurrent scans, which are admitted in turn between tenants.
const MAX_SCANS: usize = 4;
/// The maximum number of concurrent scans of a tenant: one with slow sources leaves the others to other tenants.
const MAX_SCANS_OF_TENANT: usize = MAX_SCANS / 2;
/// The maximum number of scans that wait for another to end, and how long each waits.
const MAX_WAITING: usize = 10_000;
const WAITS_FOR_SCAN: Duration = Duration::from_mins(10);
/// How often a tree of files is scanned besides notifications.
const FILE_SCAN_INTERVAL: Duration = Duration::from_mins(1);
/// How soon a scan is repeated that the database made fail, and notifications are opened again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// How soon a scan is repeated that the source made fail.
const SOURCE_RETRY: Backoff = Backoff::new(RETRY_DELAY, Duration::from_mins(1));
/// How often it is looked whether the connection changed.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a scan waits for notifications to begin.
const OPENED_WITHIN: Duration = Duration::from_secs(5);
/// The shortest time between two scans of a mount.
const BETWEEN_SCANS: Duration = Duration::from_secs(1);

/// Scans mounts.
pub struct MountScanner {
    catalog: Arc<Catalog>,
    leases: Arc<Leases>,
    scans: Arc<FairSemaphore<TenantId>>,
    followed: HashMap<(ScannedMount, ConnectionLease), Following>,
}

/// A task that follows a mount.
struct Following {
    /// The revision at which a scan was last requested.
    requested: watch::Sender<Revision>,
    /// Ends it.
    _stop: DropGuard,
}

impl MountScanner {
    /// Scans nothing yet.
    pub fn new(catalog: Arc<Catalog>, leases: Arc<Leases>) -> Self {
        let scans = FairSemaphore::with_share(MAX_SCANS, MAX_SCANS_OF_TENANT, MAX_WAITING);
        Self { catalog, leases, scans, followed: HashMap::new() }
    }

    /// Scans until `stop`. Without mounts it runs a statement only when something changed.
    pub async fn run(mut self, stop: CancellationToken) {
        let (claim, mut held) = (self.leases.claim(), self.leases.held());
        let mut tasks = JoinSet::new();
        let mut ticks = aligned_timers::interval(REFRESH);
        let (mut mounts, mut looked) = (Vec::new(), None);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
                changed = held.changed() => if changed.is_err() { break },
                Some(_) = tasks.join_next() => continue,
            }
            let raises = self.catalog.scopes.raises();
            let is_due = |(at, seen): (Instant, u64)| {
                seen != raises || !mounts.is_empty() && at.elapsed() >= REFRESH_IDLE
            };
            if looked.is_none_or(is_due) {
                match self.catalog.store.scanned_mounts(MAX_MOUNTS, MAX_OF_TENANT).await {
                    Ok(found) => (mounts, looked) = (found, Some((Instant::now(), raises))),
                    Err(error) => tracing::debug!(%error, "mounts not read"),
                }
                claim.set(mounts.iter().map(|(mount, _)| mount.connection).collect::<BTreeSet<_>>());
            }
            self.follow(&mounts, &mut tasks);
        }
        self.followed.clear();
        tasks.shutdown().await;
    }

    /// Follows these mounts as far as the leases of their connections are held, and no others. On the threads of fetches,
    /// since a source decides how much work it is.
    fn follow(&mut self, mounts: &[(ScannedMount, Revision)], tasks: &mut JoinSet<()>) {
        let with_lease = mounts.iter().filter_map(|(mount, requested)| {
            Some(((mount.clone(), self.leases.of(mount.connection)?), *requested))
        });
        let mut wanted: HashMap<_, _> = with_lease.collect();
        self.followed.retain(|followed, following| {
            // One whose task has panicked begins again.
            if following.requested.is_closed() {
                return false;
            }
            let wanted = wanted.remove(followed);
            if let Some(requested) = wanted {
                let replace = |before: &mut Revision| std::mem::replace(before, requested) != requested;
                following.requested.send_if_modified(replace);
            }
            wanted.is_some()
        });
        for ((mount, lease), requested) in wanted {
            let stop = CancellationToken::new();
            let scan = Scan { catalog: Arc::clone(&self.catalog), mount: mount.clone(), lease };
            let (sender, requested) = watch::channel(requested);
            let scans = Arc::clone(&self.scans);
            let followed = Followed {
                scan,
                scans,
                hints: None,
                seen: None,
                requested,
                // The replica that held the lease before may have left a request.
                requested_at: Some(Instant::now()),
                rests_until: Instant::now(),
            };
            let task = Box::pin(followed.run());
            let until = stop.clone();
            let task = async move { until.run_until_cancelled(task).await.unwrap_or_default() };
            tasks.spawn_on(task, &self.catalog.fetcher().runtime());
            let following = Following { requested: sender, _stop: stop.drop_guard() };
            self.followed.insert((mount, lease), following);
        }
    }
}

/// A mount that is followed.
struct Followed {
    scan: Scan,
    scans: Arc<FairSemaphore<TenantId>>,
    hints: Option<BoxStream<'static, ChangeHint>>,
    /// The connection as it was scanned last.
    seen: Option<Arc<Connection>>,
    /// Changes when a scan is requested.
    requested: watch::Receiver<Revision>,
    /// When a scan was requested that is still to be made.
    requested_at: Option<Instant>,
    /// No requested scan begins before: it takes at most half of the time.
    rests_until: Instant,
}

impl Followed {
    /// Scans until the mount or the lease is gone.
    async fn run(mut self) {
        let (mut extent, mut last) = (ScanExtent::All, Last::default());
        let (mut full, mut failures) = (Instant::now(), 0_u32);
        loop {
            // Before the scan: what changes from then on is notified.
            let mount = self.open().await;
            if let Some((hints, mount)) = self.hints.as_mut().zip(mount.as_ref()) {
                while let Some(Some(hint)) = hints.next().now_or_never() {
                    extent.add(hint, &mount.tree.path, &mount.filter);
                }
            }
            let is_all = extent == ScanExtent::All;
            let Some(permit) = self.scans.acquire(self.scan.mount.agent.tenant, WAITS_FOR_SCAN).await else {
                continue;
            };
            let requested = if is_all { self.take_request() } else { None };
            // Before the scan: a change during it is noticed after it.
            let known = self.known_connection();
            let began = Instant::now();
            let ended = self.scan.run(&extent, requested, &mut last).await;
            let over = Instant::now();
            self.rests_until = over + began.elapsed();
            drop(permit);
            if !matches!(ended, Ok(ScanEnd::Done(_))) {
                self.requested_at = self.requested_at.or(requested);
            }
            let mut next = ScanExtent::nothing();
            match ended {
                Ok(ScanEnd::Done(connection)) => {
                    if is_all {
                        full = self.next(&connection);
                    }
                    (self.seen, failures) = (Some(connection), 0);
                }
                Ok(ScanEnd::Incomplete) => next = ScanExtent::All,
                Ok(ScanEnd::Failed) => {
                    full = Instant::now() + SOURCE_RETRY.delay(failures);
                    (self.seen, failures) = (known, failures.saturating_add(1));
                }
                // Whether it is, is looked up: another write may have been faster.
                Ok(ScanEnd::Gone) => full = Instant::now() + RETRY_DELAY,
                Err(fault) => {
                    tracing::debug!(%fault, "mount not scanned");
                    full = Instant::now() + RETRY_DELAY;
                }
            }
            if next.is_empty() {
                next = self.wait(full, mount.as_deref()).await;
            }
            extent = next;
            sleep_until(over + BETWEEN_SCANS).await;
        }
    }

    /// Opens the notifications of the source, unless they are; returns the mount.
    async fn open(&mut self) -> Option<Arc<Mount>> {
        let Scan { catalog, mount, .. } = &self.scan;
        let tenant = mount.agent.tenant;
        let snapshot = catalog.snapshot_of(Payer::Tenant(tenant), tenant, mount.agent.uid).await;
        let view = snapshot.ok().map(View::unfiltered);
        let known = view?.get::<Mount>(mount.name.as_str()).cloned()?;
        if self.hints.is_none() {
            let connections = catalog.fetcher.connections();
            let found = connections.get(Payer::Tenant(tenant), mount.connection).await.ok().flatten();
            self.hints =
                found.and_then(|found| Some(found.source(tenant).ok()?.watch(&known.tree)?.fuse().boxed()));
            // The first notification says that the next ones come: what changes from then on is not missed.
            if let Some(hints) = &mut self.hints {
                _ = timeout(OPENED_WITHIN, hints.next()).await;
            }
        }
        Some(known)
    }

    /// When a scan was requested since the last one that succeeded.
    fn take_request(&mut self) -> Option<Instant> {
        let is_new = self.requested.has_changed().unwrap_or_default();
        self.requested.mark_unchanged();
        let before = self.requested_at.take();
        if is_new { Some(Instant::now()) } else { before }
    }

    /// Waits for notifications, requests, another state of the connection, or the next scan of everything.
    async fn wait(&mut self, full: Instant, mount: Option<&Mount>) -> ScanExtent {
        let mut ticks = interval(CONNECTION_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let hint = async {
                match &mut self.hints {
                    Some(hints) => hints.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep_until(full) => return ScanExtent::All,
                hint = hint => {
                    // Notifications that ended are opened again, which begins with everything.
                    let Some(hint) = hint else {
                        self.hints = None;
                        sleep(RETRY_DELAY).await;
                        return ScanExtent::All;
                    };
                    let mut extent = ScanExtent::nothing();
                    if let Some(mount) = mount {
                        extent.add(hint, &mount.tree.path, &mount.filter);
                    }
                    if !extent.is_empty() {
                        return extent;
                    }
                }
                changed = self.requested.changed() => {
                    // Without a sender this task is about to end.
                    if changed.is_ok() {
                        self.requested_at = Some(Instant::now());
                        sleep_until(self.rests_until).await;
                    }
                    return ScanExtent::All;
                }
                _ = ticks.tick() => if self.is_changed() {
                    self.hints = None;
                    return ScanExtent::All;
                },
            }
        }
    }

    /// When everything is scanned again.
    fn next(&self, connection: &Connection) -> Instant {
        let poll = connection.limits.poll();
        match connection.kind {
            Kind::Git => self.scan.catalog.fetcher.round(connection.uid, poll).next,
            Kind::File => Instant::now() + interval_of(Kind::File, poll),
            kind => Instant::now() + interval_of(kind, poll).mul_f64(1.0 - self.scan.catalog.jitter()),
        }
    }

    /// Whether the connection changed since it was scanned.
    fn is_changed(&self) -> bool {
        let seen = self.seen.as_ref().map(|seen| seen.revision);
        seen.is_some_and(|seen| self.known_connection().is_none_or(|known| known.revision != seen))
    }

    fn known_connection(&self) -> Option<Arc<Connection>> {
        self.scan.catalog.fetcher.connections().in_memory(self.scan.mount.connection)
    }
}

/// How often everything of a kind is scanned that is polled so often.
fn interval_of(kind: Kind, poll: Duration) -> Duration {
    if kind == Kind::File { FILE_SCAN_INTERVAL } else { poll }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use content_source::Kind;

    use super::interval_of;

    #[test]
    fn files_are_scanned_once_a_minute_and_others_as_often_as_they_are_polled() {
        for poll in [Duration::from_secs(1), Duration::from_mins(10)] {
            assert_eq!(interval_of(Kind::File, poll), Duration::from_mins(1));
            assert_eq!(interval_of(Kind::S3, poll), poll);
        }
    }
}
