//! The leases of this replica: of each connection whose content is watched, one replica at a time holds the lease.
//!
//! A lease expires by the clock of the database, unless it is extended. Its fence is compared in each transaction that
//! depends on it ([`Write::has_lease`](crate::store::write::Write::has_lease)), so that a replica that has lost it writes
//! nothing, even if it believes that it holds one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::model::ids::ConnectionId;
use crate::store::Store;
use crate::store::leases::{ConnectionLease, HeldLease};

/// For how long a lease is held without being extended.
const DURATION: Duration = Duration::from_secs(6);
/// How often leases are extended.
const EXTEND_EVERY: Duration = Duration::from_secs(2);
/// How often free leases are looked for, and changes of what is recorded for connections.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How long the database has to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The leases of this replica.
pub struct Leases {
    store: Store,
    holder: Uuid,
    claims: Mutex<Vec<BTreeSet<ConnectionId>>>,
    held: watch::Sender<BTreeMap<ConnectionId, HeldLease>>,
    claimed: Notify,
}

/// Connections whose leases a part of this replica wants to have.
pub struct Claim {
    leases: Arc<Leases>,
    number: usize,
}

impl Claim {
    /// Replaces the connections. A lease that no part of the replica wants is given back.
    pub fn set(&self, connections: BTreeSet<ConnectionId>) {
        let mut claims = self.leases.claims.lock();
        if let Some(claim) = claims.get_mut(self.number).filter(|claim| **claim != connections) {
            *claim = connections;
            self.leases.claimed.notify_one();
        }
    }
}

impl Leases {
    /// The leases of the replica `holder`, which has none yet.
    pub fn new(store: Store, holder: Uuid) -> Self {
        let held = watch::Sender::default();
        Self { store, holder, claims: Mutex::default(), held, claimed: Notify::new() }
    }

    /// The replica.
    pub fn holder(&self) -> Uuid {
        self.holder
    }

    /// Claims connections for a part of the replica; none yet.
    pub fn claim(self: &Arc<Self>) -> Claim {
        let mut claims = self.claims.lock();
        claims.push(BTreeSet::new());
        Claim { leases: Arc::clone(self), number: claims.len() - 1 }
    }

    /// Looks at once for free leases, and for changes of what is recorded for connections.
    pub fn look(&self) {
        self.claimed.notify_one();
    }

    /// The leases that are held, and their changes.
    pub fn held(&self) -> watch::Receiver<BTreeMap<ConnectionId, HeldLease>> {
        self.held.subscribe()
    }

    /// The lease of a connection, if it is held.
    pub fn of(&self, connection: ConnectionId) -> Option<ConnectionLease> {
        self.held.borrow().get(&connection).map(|held| held.lease)
    }

    /// Takes and extends leases until `stop`, then gives them back. Without claims it does not wake up.
    pub async fn run(&self, stop: CancellationToken) {
        let mut ticks = aligned_timers::interval(REFRESH_INTERVAL);
        let mut extended = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick(), if !self.is_idle() => {}
                () = self.claimed.notified() => {}
            }
            self.refresh(&mut extended).await;
        }
        if !self.held.borrow().is_empty() {
            self.held.send_replace(BTreeMap::new());
            let given_back = self.store.keep_leases(self.holder, &[], false, DURATION);
            if !matches!(timeout(ANSWERS_WITHIN, given_back).await, Ok(Ok(_))) {
                tracing::debug!("leases of connections not given back; they expire");
            }
        }
    }

    /// Whether there is nothing to take and nothing to give back.
    fn is_idle(&self) -> bool {
        self.claims.lock().iter().all(BTreeSet::is_empty) && self.held.borrow().is_empty()
    }

    /// `extended` is when the leases were extended last.
    async fn refresh(&self, extended: &mut Option<Instant>) {
        if self.is_idle() {
            return;
        }
        let claimed: BTreeSet<_> = self.claims.lock().iter().flatten().copied().collect();
        let began = Instant::now();
        let extend = extended.is_none_or(|at| began.duration_since(at) >= EXTEND_EVERY);
        let claimed: Vec<_> = claimed.into_iter().collect();
        let kept = timeout(ANSWERS_WITHIN, self.store.keep_leases(self.holder, &claimed, extend, DURATION));
        let held = match kept.await {
            Ok(Ok(held)) => {
                if extend {
                    *extended = Some(began);
                }
                held.into_iter().map(|held| (held.lease.connection, held)).collect()
            }
            // Another replica may have them by now.
            _ if extended.is_none_or(|at| at.elapsed() >= DURATION) => BTreeMap::new(),
            _ => return,
        };
        self.held.send_if_modified(|before| {
            let is_other = *before != held;
            *before = held;
            is_other
        });
    }
}
