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

use crate::model::audit::event::{Actor, ActorKind, Event};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Outcome;
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::limits::Rate;
use crate::model::method::Method;

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
        let is_free =
            event.status.is_some_and(|status| status >= 400) || event.method == Method::Discover.name();
        match (event.actor.kind, event.actor.key) {
            (ActorKind::Unknown | ActorKind::Anybody, _) => {
                let mut window = self.window(event.at);
                window.admit_unauthenticated(event.client.network()) || window.add(event)
            }
            (_, Some(key)) if is_free => {
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
mod tests {
    use std::borrow::Cow;
    use std::net::IpAddr;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use time::macros::datetime;
    use time::{Duration, OffsetDateTime};
    use uuid::Uuid;

    use super::{Aggregator, MAX_GROUPS};
    use crate::model::audit::event::{Actor, ActorKind, Event};
    use crate::model::client_address::ClientAddress;
    use crate::model::fault::Outcome;
    use crate::model::ids::{KeyId, PrincipalId};
    use crate::model::limits::{Rate, RateLimit};

    const START: OffsetDateTime = datetime!(2026-07-28 12:00 UTC);

    fn aggregator() -> Aggregator {
        Aggregator::new(Rate::new(5, 10), StdRng::from_seed([7; 32]))
    }

    fn client(address: &str) -> ClientAddress {
        address.parse::<IpAddr>().unwrap().into()
    }

    fn refused(address: &str, slug: &str) -> Event {
        Event {
            slug: Some(slug.into()),
            outcome: Outcome::Unauthenticated,
            status: Some(401),
            bytes_in: 10,
            ..Event::new(START, "r".into(), client(address), Cow::Borrowed("POST"))
        }
    }

    fn by_key(number: u128, limits: RateLimit, status: u16) -> Event {
        let uid = Uuid::from_u128(number);
        let actor = Actor {
            kind: ActorKind::Agent,
            principal: Some(PrincipalId(uid)),
            key: Some(KeyId(uid)),
            limits,
        };
        let outcome = if status < 400 { Outcome::Ok } else { Outcome::RateLimited };
        Event { actor, outcome, status: Some(status), ..refused("192.0.2.1", "helper") }
    }

    /// Agent, outcome, client and subject of aggregated rows.
    fn summaries(rows: &[Event]) -> Vec<String> {
        let summary = |row: &Event| {
            let slug = row.slug.as_deref().unwrap_or("-");
            format!(
                "{slug} {} {} {}",
                row.outcome.as_str(),
                row.client,
                row.subject.as_deref().unwrap_or_default()
            )
        };
        rows.iter().map(summary).collect()
    }

    #[test]
    fn unauthenticated_requests_share_rows_beyond_the_limit() {
        let aggregator = aggregator();
        let mut event = refused("192.0.2.1", "helper");
        let own = (0..1_200).filter(|second| {
            event.at = START + Duration::milliseconds(*second);
            aggregator.admit(&event)
        });
        assert_eq!(own.count(), 60);
        assert!(aggregator.admit(&refused("192.0.2.2", "helper")), "another address");
        (0..60).for_each(|number| assert!(aggregator.admit(&refused(&format!("2001:db8::{number}"), "x"))));
        assert!(!aggregator.admit(&refused("2001:db8::ffff", "x")), "the addresses of one /64 count as one");
        assert_eq!(aggregator.due(START + Duration::seconds(59)).len(), 0);
        let rows = aggregator.due(START + Duration::seconds(60));
        let expected = "helper unauthenticated 192.0.2.1 \
            1140 requests from 2026-07-28T12:00:00.06Z to 2026-07-28T12:00:01.199Z";
        let network = "x unauthenticated 2001:db8:: \
            1 requests from 2026-07-28T12:00:00Z to 2026-07-28T12:00:00Z";
        assert_eq!(summaries(&rows), [expected, network]);
        assert_eq!((rows[0].bytes_in, &*rows[0].method), (11_400, "audit/aggregated"));
        assert!(aggregator.admit(&event), "another minute");
        assert!(aggregator.end(START).is_empty());
    }

    #[test]
    fn window_begins_with_its_first_request() {
        let aggregator = aggregator();
        let later = START + Duration::seconds(30);
        let event = Event { at: later, ..refused("192.0.2.1", "helper") };
        (0..61).for_each(|_| _ = aggregator.admit(&event));
        assert_eq!(aggregator.due(START + Duration::seconds(60)).len(), 0);
        assert_eq!(aggregator.due(later + Duration::seconds(60)).len(), 1);
        assert_eq!(aggregator.due(later + Duration::seconds(120)).len(), 0);
    }

    #[test]
    fn unauthenticated_requests_have_600_rows_per_minute() {
        let aggregator = aggregator();
        let addresses = (0..2_000_u32).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
        let own = addresses.filter(|address| aggregator.admit(&refused(&address.to_string(), "helper")));
        assert_eq!(own.count(), 600);
        assert_eq!(aggregator.state.lock().addresses.len(), 600);
        let rows = aggregator.end(START);
        assert_eq!(rows.len(), MAX_GROUPS + 1);
        let sum = |row: &Event| row.subject.as_deref()?.split(' ').next()?.parse::<u64>().ok();
        assert_eq!(rows.iter().filter_map(sum).sum::<u64>(), 1_400);
        assert_eq!(
            rows.last().map(|row| (row.client.to_string(), &row.slug)),
            Some(("0.0.0.0".to_owned(), &None))
        );
        assert!(
            rows.iter().any(|row| row.client.to_string().as_str() > "10.0.5.220"),
            "groups that came late are sampled too"
        );
    }

    #[test]
    fn aggregated_rows_are_separate_per_agent() {
        let aggregator = aggregator();
        (0..60).for_each(|_| assert!(aggregator.admit(&refused("192.0.2.1", "x"))));
        for slug in ["helper", "other", "helper", &"ä".repeat(100)] {
            assert!(!aggregator.admit(&refused("192.0.2.1", slug)));
        }
        let slugs: Vec<_> = aggregator.end(START).into_iter().filter_map(|row| row.slug).collect();
        assert_eq!(slugs, ["helper", "other", &"ä".repeat(32)].map(Box::from));
    }

    #[test]
    fn refusals_of_a_key_have_own_rows_up_to_its_burst() {
        let aggregator = aggregator();
        let wider = RateLimit { burst: Some(30), ..RateLimit::default() };
        for (key, limits, expected) in [(1, RateLimit::default(), 10), (2, wider, 30)] {
            let own = (0..100).filter(|_| aggregator.admit(&by_key(key, limits, 429)));
            assert_eq!(own.count(), expected);
            assert!((0..1_000).all(|_| aggregator.admit(&by_key(key, limits, 200))), "no refusal");
        }
        let rows = aggregator.end(START);
        let keys: Vec<_> = rows.iter().map(|row| row.actor.key.map(|key| key.0.as_u128())).collect();
        assert_eq!(keys, [Some(1), Some(2)]);
        assert!(rows[1].subject.as_deref().unwrap().starts_with("70 requests from "));
    }

    #[test]
    fn discoveries_of_a_key_have_own_rows_up_to_its_burst() {
        let aggregator = aggregator();
        let discover =
            Event { method: Cow::Borrowed("server/discover"), ..by_key(1, RateLimit::default(), 200) };
        assert_eq!((0..100).filter(|_| aggregator.admit(&discover)).count(), 10);
        let rows = aggregator.end(START);
        assert_eq!(rows.len(), 1);
        assert_eq!((&*rows[0].method, rows[0].outcome), ("audit/aggregated", Outcome::Ok));
        assert!(rows[0].subject.as_deref().unwrap().starts_with("90 requests from "));
    }

    #[test]
    fn window_ends_when_the_clock_is_set_back() {
        let aggregator = aggregator();
        (0..61).for_each(|_| {
            aggregator.admit(&refused("192.0.2.1", "helper"));
        });
        assert_eq!(aggregator.due(START - Duration::HOUR).len(), 1);
        assert!(aggregator.due(START - Duration::HOUR + Duration::seconds(59)).is_empty());
    }
}
