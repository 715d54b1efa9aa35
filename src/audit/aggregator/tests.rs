//! Which events get rows of their own, and the sums of the others.

use std::borrow::Cow;
use std::net::IpAddr;

use rand::SeedableRng;
use rand::rngs::StdRng;
use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Aggregator, MAX_GROUPS};
use crate::model::audit::event::{Actor, ActorKind, Event, Outcome};
use crate::model::client_address::ClientAddress;
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
    let actor =
        Actor { kind: ActorKind::Agent, principal: Some(PrincipalId(uid)), key: Some(KeyId(uid)), limits };
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
fn only_events_that_may_be_aggregated_are_without_a_row() {
    let kinds = [
        ActorKind::Unknown,
        ActorKind::Anybody,
        ActorKind::Agent,
        ActorKind::Owner,
        ActorKind::Token,
        ActorKind::Operator,
    ];
    let mut without = 0;
    let cases = kinds.into_iter().flat_map(|kind| {
        [None, Some(200), Some(404)].map(|status| (kind, status)).into_iter().flat_map(|(kind, status)| {
            ["resources/read", "server/discover"].map(|method| (kind, status, method))
        })
    });
    for (kind, status, method) in cases {
        let aggregator = aggregator();
        let mut event = by_key(1, RateLimit::default(), 200);
        (event.actor.kind, event.status, event.method) = (kind, status, Cow::Borrowed(method));
        let own = (0..1_000).filter(|_| aggregator.admit(&event)).count();
        assert_eq!(own < 1_000, event.may_be_aggregated(), "{kind:?} {status:?} {method}");
        without += usize::from(own < 1_000);
    }
    assert_eq!(without, 28);
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
    let discover = Event { method: Cow::Borrowed("server/discover"), ..by_key(1, RateLimit::default(), 200) };
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
