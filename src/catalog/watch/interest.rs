//! What streams of this replica are subscribed to of content that comes from connections, and its record in the database.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::catalog::snapshot::view::View;
use crate::model::caller::Payer;
use crate::model::feed::{SubscriptionStamp, Subscriptions};
use crate::model::ids::{AgentRef, ConnectionId, ResourceUri};
use crate::model::label::CallerLabels;
use crate::model::scope::{Revision, Scope};
use crate::model::variant::Variant;
use crate::store::StoreError;
use crate::store::watching::WatchedSubject;

/// The maximum number of subjects of a replica; further ones are watched once others are not.
const MAX_SUBJECTS: usize = 50_000;
/// The maximum number of subjects of a tenant: those of a few leave no others unwatched.
const MAX_OF_TENANT: usize = MAX_SUBJECTS / 4;
/// The maximum number of subjects of a statement.
const AT_ONCE: usize = 1_000;
/// For how long subjects are recorded without being extended.
const LIFETIME: Duration = Duration::from_secs(20);
/// How often they are extended.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// After what time a statement is repeated that failed.
const RETRY: Duration = Duration::from_secs(1);
/// After how many look-ups of URIs other tasks run.
const YIELD_EVERY: usize = 256;

/// The state of an agent in which its subscribed URIs were examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExaminedState {
    stamp: SubscriptionStamp,
    revision: Revision,
    /// Whether everything was matched: what was too much is looked at again now and then.
    is_complete: bool,
}

/// The connections of the content of the subscribed URIs of an agent.
type Subjects = BTreeMap<Variant, ConnectionId>;

/// What streams of this replica are subscribed to.
pub(super) struct Interest {
    catalog: Arc<Catalog>,
    subscriptions: Arc<dyn Subscriptions>,
    replica: Uuid,
    examined: HashMap<AgentRef, ExaminedState>,
    wanted: HashMap<AgentRef, Subjects>,
    recorded: HashMap<AgentRef, Subjects>,
    /// Agents of which something else is recorded than wanted.
    differing: HashSet<AgentRef>,
    /// The timeline of the database in which it is recorded.
    timeline: u64,
    /// Whether an agent had streams when it was looked last.
    has_streams: bool,
    /// Whether this replica watches connections.
    is_watching: bool,
    /// When statements run again.
    records_at: Instant,
    extends_at: Instant,
}

impl Interest {
    pub(super) fn new(catalog: Arc<Catalog>, subscriptions: Arc<dyn Subscriptions>, replica: Uuid) -> Self {
        Self {
            timeline: catalog.scopes.timeline(),
            has_streams: false,
            is_watching: false,
            catalog,
            subscriptions,
            replica,
            examined: HashMap::new(),
            wanted: HashMap::new(),
            recorded: HashMap::new(),
            differing: HashSet::new(),
            records_at: Instant::now(),
            extends_at: Instant::now(),
        }
    }

    /// Whether no agent has streams, and nothing is recorded or remains to be.
    pub(super) fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.differing.is_empty() && !self.has_streams
    }

    /// Waits until an agent gets its first stream.
    pub(super) async fn first_stream(&self) {
        self.subscriptions.first_stream().await;
    }

    /// The connections that something is wanted of.
    pub(super) fn connections(&self) -> BTreeSet<ConnectionId> {
        self.wanted.values().flat_map(BTreeMap::values).copied().collect()
    }

    /// Finds what is subscribed to and comes from a connection; with `all` also what is not any more.
    pub(super) async fn refresh(&mut self, all: bool) {
        let agents = self.subscriptions.agents();
        self.has_streams = !agents.is_empty();
        if all {
            let live: HashSet<_> = agents.iter().map(|(agent, _)| *agent).collect();
            self.examined.retain(|agent, _| live.contains(agent));
            self.forget_unsubscribed();
        }
        for (agent, stamp) in agents {
            // What is recorded does not expire however long this takes.
            self.extend().await;
            let AgentRef { tenant, uid } = agent;
            let applied = self.catalog.scopes.applied(Scope::from(uid));
            let is_same = |state: &ExaminedState| {
                state.stamp == stamp && applied.is_none_or(|applied| applied == state.revision)
            };
            // Without loading what is not in memory, except now and then.
            if !all && self.examined.get(&agent).is_some_and(is_same) {
                continue;
            }
            let Ok(snapshot) = self.catalog.snapshot_of(Payer::Tenant(tenant), tenant, uid).await else {
                continue;
            };
            let state = ExaminedState { stamp, revision: snapshot.revision, is_complete: true };
            let view = View::unfiltered(snapshot);
            // With labels, callers who are gone may have been the only ones who saw something.
            let is_known = self.examined.get(&agent) == Some(&state) && !view.has_labels();
            if !is_known {
                let is_complete = self.examine(agent, &view).await;
                self.examined.insert(agent, ExaminedState { is_complete, ..state });
            }
        }
    }

    /// Drops what no stream is subscribed to any more.
    fn forget_unsubscribed(&mut self) {
        for (agent, subjects) in &mut self.wanted {
            let before = subjects.len();
            let live: HashSet<_> = self.subscriptions.uris(*agent).into_iter().collect();
            subjects.retain(|variant, _| live.contains(&variant.uri));
            if subjects.len() < before {
                self.differing.insert(*agent);
            }
        }
        self.wanted.retain(|_, subjects| !subjects.is_empty());
    }

    /// The subscribed URIs of an agent, each with the labels of each caller; as those of one who sees everything if no
    /// definition has labels.
    fn subscribed(&self, agent: AgentRef, view: &View) -> Vec<(ResourceUri, CallerLabels)> {
        if !view.has_labels() {
            let uris = self.subscriptions.uris(agent).into_iter();
            return uris.map(|uri| (uri, CallerLabels::Everything)).collect();
        }
        let by_uri = self.subscriptions.callers(agent).into_iter();
        by_uri
            .flat_map(|(uri, callers)| callers.into_iter().map(move |caller| (uri.clone(), caller)))
            .collect()
    }

    /// Finds the connections of what is subscribed to of an agent, as far as the limits allow. Returns false if they do not
    /// allow all of it.
    async fn examine(&mut self, agent: AgentRef, view: &View) -> bool {
        let others = || self.wanted.iter().filter(|(other, _)| **other != agent);
        let all: usize = others().map(|(_, subjects)| subjects.len()).sum();
        let of_tenant = others().filter(|(other, _)| other.tenant == agent.tenant);
        let of_tenant: usize = of_tenant.map(|(_, subjects)| subjects.len()).sum();
        let most = MAX_SUBJECTS.saturating_sub(all).min(MAX_OF_TENANT.saturating_sub(of_tenant));
        let (mut subjects, mut is_complete) = (Subjects::new(), true);
        let mut views = HashMap::new();
        let mut subscribed = self.subscribed(agent, view);
        if subscribed.len() > most {
            // So that each look finds the same.
            subscribed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        }
        for (number, (uri, caller)) in subscribed.into_iter().enumerate() {
            if subjects.len() >= most {
                is_complete = false;
                break;
            }
            if number % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
            let seen = views.entry(caller.clone()).or_insert_with(|| view.of(caller));
            let Ok(answering) = seen.answering(&uri) else { continue };
            let connection = answering.sourced().and_then(|sourced| sourced.connection());
            let variant = answering.variant(&uri);
            if let Some(connection) = connection.filter(|_| variant.is_storable()) {
                subjects.insert(variant, connection);
            }
        }
        if self.wanted.get(&agent).unwrap_or(&Subjects::new()) != &subjects {
            self.differing.insert(agent);
            self.wanted.insert(agent, subjects);
        }
        is_complete
    }

    /// Records what is wanted. Returns whether that changed something. `is_watching` is whether this replica watches
    /// connections.
    pub(super) async fn record(&mut self, is_watching: bool) -> bool {
        self.is_watching = is_watching;
        // First: a record would revive what has expired.
        self.extend().await;
        if Instant::now() < self.records_at {
            return false;
        }
        let is_changed = !self.differing.is_empty();
        let recorded = async {
            for agent in self.differing.clone() {
                self.record_agent(agent).await?;
                self.differing.remove(&agent);
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = recorded.await {
            tracing::debug!(%error, "what is watched not recorded");
            self.records_at = Instant::now() + RETRY;
        }
        is_changed
    }

    /// Extends what is recorded, if that is due. What has expired, or was recorded in another timeline of the database, which
    /// may lack it, is recorded again.
    async fn extend(&mut self) {
        let now = Instant::now();
        if now < self.records_at {
            return;
        }
        let timeline = self.catalog.scopes.timeline();
        let mut is_lost = std::mem::replace(&mut self.timeline, timeline) != timeline;
        if now >= self.extends_at && (self.is_watching || !self.recorded.is_empty()) {
            match self.catalog.store.extend_watching(self.replica, LIFETIME).await {
                Ok(is_recorded) => {
                    is_lost |= !is_recorded;
                    self.extends_at = now + EXTEND_EVERY;
                }
                Err(error) => {
                    tracing::debug!(%error, "what is watched not extended");
                    self.records_at = Instant::now() + RETRY;
                }
            }
        }
        if is_lost {
            self.differing.extend(self.recorded.drain().map(|(agent, _)| agent));
        }
    }

    /// Records what is wanted of an agent.
    async fn record_agent(&mut self, agent: AgentRef) -> Result<(), StoreError> {
        let (catalog, replica) = (Arc::clone(&self.catalog), self.replica);
        let wanted = self.wanted.get(&agent).cloned().unwrap_or_default();
        let recorded = self.recorded.entry(agent).or_default();
        let other = |variant: &Variant, connection: &ConnectionId, than: &Subjects| {
            than.get(variant).is_none_or(|known| known != connection)
        };
        let gone = recorded.iter().filter(|(variant, connection)| other(variant, connection, &wanted));
        let gone: Vec<WatchedSubject> = gone.map(|(variant, _)| (agent, variant.clone())).collect();
        for batch in gone.chunks(AT_ONCE) {
            catalog.store.forget_watching(replica, batch).await?;
            for (_, variant) in batch {
                recorded.remove(variant);
            }
        }
        let added = wanted.iter().filter(|(variant, connection)| other(variant, connection, recorded));
        let added: Vec<_> =
            added.map(|(variant, connection)| ((agent, variant.clone()), *connection)).collect();
        for batch in added.chunks(AT_ONCE) {
            catalog.store.record_watching(replica, batch, LIFETIME).await?;
            recorded.extend(batch.iter().map(|((_, variant), connection)| (variant.clone(), *connection)));
        }
        if recorded.is_empty() {
            self.recorded.remove(&agent);
        }
        Ok(())
    }

    /// Forgets what is recorded.
    pub(super) async fn end(mut self) {
        self.differing = self.recorded.keys().copied().collect();
        self.wanted.clear();
        self.records_at = Instant::now();
        self.record(false).await;
    }
}
