//! Aggregation: bounds the number of audit rows that callers cause with requests that cost them nothing. Requests
//! without a valid credential beyond a number per minute, and refused requests and discoveries of a key beyond its
//! burst, share rows with a count.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use parking_lot::{Mutex, MutexGuard};
use rand::RngExt;
use rand::rngs::StdRng;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use tokio::sync::Notify;

use crate::model::audit::event::{Actor, ActorKind, Event, Outcome};
use crate::model::client_address::ClientAddress;
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::limits::Rate;

/// Duration of a window, after which its sums are written.
const WINDOW: Duration = Duration::MINUTE;
/// Own rows per window for requests of one address without a valid credential.
const ROWS_PER_ADDRESS: u32 = 60;
/// Own rows per window for all requests without a valid credential.
const ROWS_UNAUTHENTICATED: u32 = 600;
/// Own rows per window for refused requests and discoveries of a key without a rate.
const ROWS_PER_KEY: u32 = 400;
/// Maximum number of keys whose refusals and discoveries are counted; those of further keys are aggregated at once.
const MAX_KEYS: usize = 4_096;
/// Maximum number of sums by source and agent per window. With more groups, a random sample is kept and the
/// rest is summed by outcome.
const MAX_GROUPS: usize = 128;
/// Maximum bytes of the agent's name in a sum: that of a valid slug.
const MAX_SLUG: usize = 64;

/// The method of an aggregated row.
pub(super) const METHOD: &str = "audit/aggregated";

/// Counts the rows of the current window.
#[derive(Debug)]
pub(super) struct Aggregator {
    state: Mutex<Window>,
    /// Notified when the first request is counted in a window.
    begun: Notify,
    /// The default rate of keys.
    key_rate: Option<Rate>,
}

#[derive(Debug)]
struct Window {
    /// When the first request was counted.
    since: Option<OffsetDateTime>,
    rows: u32,
    /// At most as many entries as rows.
    addresses: HashMap<ClientAddress, u32>,
    keys: HashMap<KeyId, u32>,
    sums: Vec<(Group, Sum)>,
    /// Number of groups that came after the maximum was reached.
    overflow: usize,
    /// Sums of the groups that are not in the sample, by outcome.
    rest: Vec<(Outcome, Sum)>,
    rng: StdRng,
}

/// Requests that share a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    client: ClientAddress,
    actor: Actor,
    outcome: Outcome,
    tenant: Option<TenantId>,
    agent: Option<AgentId>,
    slug: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    requests: u64,
    first: OffsetDateTime,
    last: OffsetDateTime,
    bytes_in: u64,
    bytes_out: u64,
}

impl Aggregator {
    pub(super) fn new(key_rate: Option<Rate>, rng: StdRng) -> Self {
        Self { state: Mutex::new(Window::new(rng)), begun: Notify::new(), key_rate }
    }

    /// The window, which begins with the first request.
    fn window(&self, at: OffsetDateTime) -> MutexGuard<'_, Window> {
        let mut window = self.state.lock();
        if window.since.is_none() {
            window.since = Some(at);
            self.begun.notify_one();
        }
        window
    }

    /// Waits until a window has begun.
    pub(super) async fn begun(&self) {
        while self.state.lock().since.is_none() {
            self.begun.notified().await;
        }
    }

    /// Whether an event gets a row of its own; otherwise it is added to a sum.
    pub(super) fn admit(&self, event: &Event) -> bool {
        match (event.actor.kind, event.actor.key) {
            (ActorKind::Unknown | ActorKind::Anybody, _) => {
                let mut window = self.window(event.at);
                window.admit_unauthenticated(event.client.network()) || window.add(event)
            }
            (_, Some(key)) if event.is_refused_or_discovery() => {
                let rate = event.actor.limits.effective(self.key_rate);
                let most = rate.map_or(ROWS_PER_KEY, |rate| rate.burst.get());
                let mut window = self.window(event.at);
                window.admit_free(key, most) || window.add(event)
            }
            _ => true,
        }
    }

    /// The sums of the window, if it is over or `now` lies before it, which ends it.
    pub(super) fn due(&self, now: OffsetDateTime) -> Vec<Event> {
        let mut window = self.state.lock();
        let over = window.since.is_some_and(|since| now < since || now - since >= WINDOW);
        if over { window.end(now) } else { Vec::new() }
    }

    /// The sums of the window, whether it is over or not, which ends it.
    pub(super) fn end(&self, now: OffsetDateTime) -> Vec<Event> {
        self.state.lock().end(now)
    }
}

impl Window {
    fn new(rng: StdRng) -> Self {
        Self {
            since: None,
            rows: 0,
            addresses: HashMap::new(),
            keys: HashMap::new(),
            sums: Vec::new(),
            overflow: 0,
            rest: Vec::new(),
            rng,
        }
    }

    fn admit_unauthenticated(&mut self, address: ClientAddress) -> bool {
        if self.rows >= ROWS_UNAUTHENTICATED {
            return false;
        }
        let rows = self.addresses.entry(address).or_default();
        let admitted = *rows < ROWS_PER_ADDRESS;
        *rows += u32::from(admitted);
        self.rows += u32::from(admitted);
        admitted
    }

    fn admit_free(&mut self, key: KeyId, most: u32) -> bool {
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&key) {
            return false;
        }
        let rows = self.keys.entry(key).or_default();
        let admitted = *rows < most;
        *rows += u32::from(admitted);
        admitted
    }

    /// Adds an event to a sum. Returns false, for "no own row".
    fn add(&mut self, event: &Event) -> bool {
        let slug = event.slug.as_deref().map(|slug| slug[..slug.floor_char_boundary(MAX_SLUG)].into());
        let group = Group {
            client: event.client.network(),
            actor: event.actor,
            outcome: event.outcome,
            tenant: event.tenant,
            agent: event.agent,
            slug,
        };
        let one = Sum::of(event);
        if let Some((_, sum)) = self.sums.iter_mut().find(|(known, _)| *known == group) {
            sum.add(one);
        } else if self.sums.len() < MAX_GROUPS {
            self.sums.push((group, one));
        } else {
            self.overflow += 1;
            // Reservoir sampling: each group is in the sample with the same probability.
            let place = self.rng.random_range(0..MAX_GROUPS + self.overflow);
            let (outcome, left) = match self.sums.get_mut(place) {
                Some(sampled) => {
                    let (left, sum) = std::mem::replace(sampled, (group, one));
                    (left.outcome, sum)
                }
                None => (group.outcome, one),
            };
            self.add_to_rest(outcome, left);
        }
        false
    }

    fn add_to_rest(&mut self, outcome: Outcome, one: Sum) {
        match self.rest.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, sum)) => sum.add(one),
            None => self.rest.push((outcome, one)),
        }
    }

    fn end(&mut self, now: OffsetDateTime) -> Vec<Event> {
        let rest = self.rest.drain(..).map(|(outcome, sum)| {
            let client = ClientAddress::Known(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let actor = Actor::default();
            (Group { client, actor, outcome, tenant: None, agent: None, slug: None }, sum)
        });
        let rows = self.sums.drain(..).chain(rest).map(|(group, sum)| sum.row(group, now)).collect();
        (self.since, self.rows, self.overflow) = (None, 0, 0);
        self.addresses.clear();
        self.keys.clear();
        rows
    }
}

impl Sum {
    fn of(event: &Event) -> Self {
        let bytes_out = event.bytes_out.unwrap_or(0);
        Self { requests: 1, first: event.at, last: event.at, bytes_in: event.bytes_in, bytes_out }
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
    }

    fn row(self, group: Group, now: OffsetDateTime) -> Event {
        let shown = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
        let subject =
            format!("{} requests from {} to {}", self.requests, shown(self.first), shown(self.last));
        Event {
            tenant: group.tenant,
            agent: group.agent,
            slug: group.slug,
            actor: group.actor,
            subject: Some(subject.into()),
            outcome: group.outcome,
            bytes_in: self.bytes_in,
            bytes_out: Some(self.bytes_out),
            ..Event::new(now, "-".into(), group.client, Cow::Borrowed(METHOD))
        }
    }
}

#[cfg(test)]
mod tests;
