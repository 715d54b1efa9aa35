//! Watches content from connections: what streams of this replica are subscribed to is fetched again and again, and a change
//! is a revision of the agent, as a change of registered content is.
//!
//! Every replica watches for its own streams. The digest of what was found last is recorded, and compared and set in the
//! transaction that makes the revision, with a fence that was read before the content was fetched: a replica whose fetch is
//! older than another's record writes nothing. So a change is one revision, whoever finds it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use content_source::{Content, Kind};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Catalog;
use super::snapshot::view::{Answering, View};
use super::target::Target;
use crate::model::audience::Audience;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::feed::{SubscriptionStamp, Subscriptions};
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::resource::Resource;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::sources::{Missed, Polled};
use crate::store::watched::Found;
use crate::store::write::Write;

/// How often it is looked for content that is due.
const TICK: Duration = Duration::from_millis(250);
/// How often content of files is looked at: what is unchanged is not read.
const OF_FILES: Duration = Duration::from_millis(500);
/// The shortest time between two revisions of the same content.
const BETWEEN_REVISIONS: Duration = Duration::from_secs(1);
/// How often ended subscriptions are looked for.
const REFRESH: Duration = Duration::from_secs(5);
/// The maximum number of watched contents; further ones are watched once others are not.
const MOST_WATCHED: usize = 50_000;
/// The maximum number of concurrent fetches.
const MOST_POLLS: usize = 64;
/// For how long it is remembered what was found.
const FOUND_FOR: time::Duration = time::Duration::days(30);
/// How often what was found long ago is forgotten.
const FORGET_EVERY: Duration = Duration::from_hours(1);

/// After how many look-ups of URIs other tasks run.
const YIELD_EVERY: usize = 256;

type Watched = (AgentRef, ResourceUri);

/// What is watched, and when it is looked at again.
#[derive(Debug)]
struct Watch {
    due: Instant,
    state: State,
}

/// What is known of watched content. Taken while it is fetched.
#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    Polling,
    Known(Known),
}

/// What was found last, and is recorded.
#[derive(Debug, Clone)]
struct Known {
    digest: ContentHash,
    /// Compared by address: content that is unchanged is not hashed again.
    contents: Option<Arc<[Content]>>,
}

/// The subscribed URIs of an agent, as they were last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Looked {
    stamp: SubscriptionStamp,
    revision: Revision,
}

/// Watches content for the streams of this replica.
pub struct Watcher {
    catalog: Arc<Catalog>,
    subscriptions: Arc<dyn Subscriptions>,
    watches: HashMap<Watched, Watch>,
    looked: HashMap<AgentRef, Looked>,
}

/// How a poll ended: when the content is looked at again, and what is known of it.
struct Ended {
    watched: Watched,
    after: Duration,
    known: Option<Known>,
}

impl Watcher {
    /// Watches nothing yet.
    pub fn new(catalog: Arc<Catalog>, subscriptions: Arc<dyn Subscriptions>) -> Self {
        Self { catalog, subscriptions, watches: HashMap::new(), looked: HashMap::new() }
    }

    /// Watches until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut polls = JoinSet::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut refreshed, mut forgotten) = (Instant::now(), None::<Instant>);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
                Some(ended) = polls.join_next() => {
                    if let Ok(ended) = ended {
                        self.ended(ended);
                    }
                    continue;
                }
            }
            let now = Instant::now();
            let is_due = now.duration_since(refreshed) >= REFRESH;
            if is_due {
                refreshed = now;
            }
            self.refresh(is_due).await;
            for watched in self.due(MOST_POLLS.saturating_sub(polls.len()), now) {
                let (catalog, known) = (Arc::clone(&self.catalog), self.begin(&watched));
                polls.spawn(async move { catalog.poll(watched, known).await });
            }
            if !self.watches.is_empty() && forgotten.is_none_or(|at| now.duration_since(at) >= FORGET_EVERY) {
                forgotten = Some(now);
                self.catalog.forget_found().await;
            }
        }
    }

    /// The content that is due, at most so many.
    fn due(&self, most: usize, now: Instant) -> Vec<Watched> {
        let is_due = |watch: &Watch| watch.due <= now && !matches!(watch.state, State::Polling);
        let due = self.watches.iter().filter(|(_, watch)| is_due(watch));
        due.take(most).map(|(watched, _)| watched.clone()).collect()
    }

    fn begin(&mut self, watched: &Watched) -> Option<Known> {
        let watch = self.watches.get_mut(watched)?;
        match std::mem::replace(&mut watch.state, State::Polling) {
            State::Known(known) => Some(known),
            State::Unknown | State::Polling => None,
        }
    }

    fn ended(&mut self, Ended { watched, after, known }: Ended) {
        if let Some(watch) = self.watches.get_mut(&watched) {
            watch.due = Instant::now() + after;
            watch.state = known.map_or(State::Unknown, State::Known);
        }
    }

    /// Finds what is subscribed to and comes from a connection; with `all` also what is not any more.
    async fn refresh(&mut self, all: bool) {
        let agents = self.subscriptions.agents();
        if all {
            let live: HashSet<_> = agents.iter().map(|(agent, _)| *agent).collect();
            self.looked.retain(|agent, _| live.contains(agent));
            self.forget_unsubscribed();
        }
        for (agent, stamp) in agents {
            let AgentRef { tenant, uid } = agent;
            let applied = self.catalog.scopes.applied(Scope::from(uid));
            let is_same = |looked: &Looked| {
                looked.stamp == stamp && applied.is_none_or(|applied| applied == looked.revision)
            };
            // Without loading what is not in memory, except now and then.
            if !all && self.looked.get(&agent).is_some_and(is_same) {
                continue;
            }
            let Ok(snapshot) = self.catalog.snapshot_of(Payer::Tenant(tenant), tenant, uid).await else {
                continue;
            };
            let looked = Looked { stamp, revision: snapshot.revision };
            let is_known = self.looked.get(&agent) == Some(&looked);
            if !is_known && self.add(agent, &View::unfiltered(snapshot)).await {
                self.looked.insert(agent, looked);
            }
        }
    }

    /// Drops what no stream is subscribed to any more.
    fn forget_unsubscribed(&mut self) {
        let agents: HashSet<_> = self.watches.keys().map(|(agent, _)| *agent).collect();
        let uris = |agent| self.subscriptions.uris(agent).into_iter().map(move |uri| (agent, uri));
        let live: HashSet<_> = agents.into_iter().flat_map(uris).collect();
        self.watches.retain(|watched, _| live.contains(watched));
    }

    /// Adds what is subscribed to of an agent. Returns false if that is too much.
    async fn add(&mut self, agent: AgentRef, view: &View) -> bool {
        let mut is_complete = true;
        for (number, uri) in self.subscriptions.uris(agent).into_iter().enumerate() {
            if number % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
            let is_sourced = view.answering(&uri).is_ok_and(|answering| answering.is_sourced());
            let watched = (agent, uri);
            if !is_sourced {
                self.watches.remove(&watched);
            } else if self.watches.len() < MOST_WATCHED || self.watches.contains_key(&watched) {
                let new = || Watch { due: Instant::now(), state: State::Unknown };
                self.watches.entry(watched).or_insert_with(new);
            } else {
                is_complete = false;
            }
        }
        is_complete
    }
}

impl Catalog {
    async fn forget_found(&self) {
        let before: OffsetDateTime = self.sources.clock.now() - FOUND_FOR;
        if let Err(error) = self.store.forget_found(before).await {
            tracing::debug!(%error, "what was found of watched content not pruned");
        }
    }

    /// Fetches watched content, and makes a revision if it differs from what is recorded.
    async fn poll(self: Arc<Self>, watched: Watched, known: Option<Known>) -> Ended {
        let (mut after, mut now_known) = (BETWEEN_REVISIONS, known.clone());
        match self.try_poll(&watched, known.as_ref()).await {
            Ok(Some((every, found))) => (after, now_known) = (every, Some(found)),
            Ok(None) => {}
            Err(fault) => {
                tracing::debug!(%fault, "watched content not fetched");
                after = REFRESH;
            }
        }
        // With jitter, so that what begins together does not stay together.
        let mut random = [0];
        let jitter = self.sources.random.fill(&mut random).map_or(0, |()| random[0]);
        let after = after.mul_f64(1.0 - f64::from(jitter) / 2_560.0);
        Ended { watched, after, known: now_known }
    }

    /// The time to the next poll, and what was found; `None` if the content is not from a connection any more, or another
    /// replica has recorded something else meanwhile.
    async fn try_poll(
        self: &Arc<Self>,
        (agent, uri): &Watched,
        known: Option<&Known>,
    ) -> Result<Option<(Duration, Known)>, Fault> {
        let (mut known, mut recorded) = (known.cloned(), None);
        // Again with what is recorded, before a difference counts.
        for is_certain in [false, true] {
            if is_certain || known.is_none() {
                recorded = self.store.found(*agent, uri).await?;
            }
            let AgentRef { tenant, uid } = *agent;
            let snapshot = self.snapshot_of(Payer::Tenant(tenant), tenant, uid).await?;
            let Ok(answering) = View::unfiltered(snapshot).answering(uri) else { return Ok(None) };
            let Some((every, contents)) = self.polled(*agent, uri, &answering).await? else {
                return Ok(None);
            };
            let same = known.as_ref().filter(|known| match (&known.contents, &contents) {
                (Some(known), Some(contents)) => Arc::ptr_eq(known, contents),
                _ => false,
            });
            let digest = same.map_or_else(|| digest(contents.as_deref()), |known| known.digest);
            let found = Known { digest, contents };
            if known.as_ref().is_some_and(|known| known.digest == digest)
                || recorded.is_some_and(|recorded| recorded.digest == digest)
            {
                return Ok(Some((every, found)));
            }
            if known.is_none() || is_certain {
                let is_recorded = self.found(*agent, uri, &answering, (recorded, digest)).await?;
                return Ok(is_recorded.then_some((every.max(BETWEEN_REVISIONS), found)));
            }
            known = None;
        }
        Ok(None)
    }

    /// The content of a connection, and how often it is looked at.
    async fn polled(
        &self,
        agent: AgentRef,
        uri: &ResourceUri,
        answering: &Answering,
    ) -> Result<Option<(Duration, Option<Arc<[Content]>>)>, Fault> {
        let Some(sourced) = answering.sourced() else { return Ok(None) };
        let Some(wanted) = sourced.wanted(agent, Payer::Tenant(agent.tenant)) else { return Ok(None) };
        match self.fetcher.poll(wanted).await {
            Ok(Polled { contents, kind, every }) => {
                Ok(Some((if kind == Kind::File { OF_FILES } else { every }, contents)))
            }
            Err(Missed::NotFound) => Err(Fault::ResourceNotFound(uri.clone())),
            Err(Missed::Fault(fault)) => Err(fault),
        }
    }

    /// Records what was found, and makes a revision, unless another replica or a write of the definition was faster.
    async fn found(
        self: &Arc<Self>,
        agent: AgentRef,
        uri: &ResourceUri,
        answering: &Answering,
        (recorded, digest): (Option<Found>, ContentHash),
    ) -> Result<bool, Fault> {
        let (catalog, uri) = (Arc::clone(self), uri.clone());
        let (labels, revision) = match answering {
            Answering::Registered(resource) => (resource.labels.clone(), Some(resource.revision)),
            Answering::Rendered(found) => (found.template.labels.clone(), None),
        };
        self.writer
            .detached(async move {
                let work = || {
                    async |write: &mut Write| {
                        let (target, old) = Target::lock::<Resource>(write, agent, uri.as_str()).await?;
                        let now = catalog.sources.clock.now();
                        if old.map(|old| old.revision) != revision
                            || !write.record_found((agent, &uri), recorded, digest, now).await?
                        {
                            return Ok(false);
                        }
                        write.touch_resource(agent, &uri, target.revision, now).await?;
                        let audience = Audience::of(&labels);
                        write.change_for(audience, target.scope, ChangeKind::ResourceTouched, uri.as_str());
                        Ok(true)
                    }
                };
                let scope = Scope::from(agent.uid);
                catalog.writer.transact_shared(scope, &AuditedWrite::UNAUDITED, work).await
            })
            .await
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
