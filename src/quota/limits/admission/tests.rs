//! Remembered limiters of callers.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use uuid::Uuid;

use super::{CallerLimiters, Limiter};
use crate::model::agent::AccessLimits;
use crate::model::caller::{Credential, CredentialKind, Reach};
use crate::model::client_address::{ClientAddress, Networks};
use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
use crate::model::label::Labels;
use crate::model::limits::{KeyLimits, LimitScope, Rate, RateLimit};
use crate::quota::limits::limiter::LimiterClock;
use crate::quota::limits::table::Table;
use crate::quota::limits::{BodyMemoryOptions, BodyPace, LimitOptions, Limits, RateLimitSubject};

type Subjects = Table<u32, FakeRelativeClock>;

fn rate(burst: u32) -> Option<Rate> {
    Rate::new(10, burst)
}

/// A table with room for one limiter.
fn table() -> (Subjects, FakeRelativeClock) {
    let clock = FakeRelativeClock::default();
    (Table::new(1, LimiterClock::new(clock.clone())), clock)
}

fn remembered(limiter: &Arc<Limiter>) -> CallerLimiters {
    let limiters = CallerLimiters::default();
    limiters.remember(&[Some((LimitScope::Key, Arc::clone(limiter))), None, None]);
    limiters
}

fn get(limiters: &CallerLimiters) -> Option<Arc<Limiter>> {
    limiters.get()?.into_iter().flatten().map(|(_, limiter)| limiter).next()
}

#[test]
fn remembered_limiter_is_that_of_the_table() {
    let (table, _) = table();
    let limiters = remembered(&table.of(1, rate(20)));
    assert!(Arc::ptr_eq(&get(&limiters).unwrap(), &table.of(1, rate(20))));
    assert!(CallerLimiters::default().get().is_none());
}

#[test]
fn limiter_that_was_replaced_or_dropped_is_looked_up_again() {
    let (table, clock) = table();
    let limiters = remembered(&table.of(1, rate(20)));
    let in_use = get(&limiters);
    table.of(1, rate(30));
    assert!(!limiters.is_outdated());
    assert!(get(&limiters).is_none(), "another rate, while a request has the limiter");
    assert!(limiters.is_outdated());
    drop(in_use);
    let limiters = remembered(&table.of(1, rate(30)));
    table.of(2, rate(20));
    assert!(get(&limiters).is_none(), "dropped to make room");
    clock.advance(Duration::from_secs(1));
    let limiters = remembered(&table.of(2, rate(20)));
    let in_use = get(&limiters);
    table.of(3, rate(20));
    assert!(get(&limiters).is_some(), "not dropped while a request has it");
    drop(in_use);
}

#[test]
fn limiter_that_subjects_share_is_not_remembered() {
    let (table, _) = table();
    assert!(table.of(1, rate(20)).enter(1));
    let limiters = remembered(&table.of(2, rate(20)));
    assert!(limiters.get().is_none());
}

#[test]
fn requests_are_charged_to_what_the_first_one_was_charged_to() {
    let clock = FakeRelativeClock::default();
    let options = LimitOptions {
        key: rate(20),
        agent: rate(20),
        tenant: rate(20),
        address: rate(20),
        concurrent_per_key: 1,
        concurrent_per_agent: 1,
        look_ups: None,
        penalty: Duration::ZERO,
        remembered: 3,
        uploads: BodyMemoryOptions {
            total: 0,
            per_tenant: 0,
            per_key: 0,
            pace: BodyPace { window: Duration::ZERO, bytes_per_second: 0 },
        },
    };
    let limits = Limits::with_clock(options, clock.clone());
    let (tenant, agent) = (TenantId(Uuid::from_u128(1)), AgentId(Uuid::from_u128(2)));
    let credential = |per_second| Credential {
        key: KeyId(Uuid::from_u128(3)),
        principal: PrincipalId(Uuid::from_u128(4)),
        expires_at: None,
        limits: KeyLimits { operator: RateLimit { per_second, burst: None }, ..KeyLimits::default() },
        kind: CredentialKind::OwnerKey,
        networks: Networks::default(),
        tenant,
        reach: Reach::Tenant,
        scopes: Vec::new(),
        labels: Labels::default(),
    };
    let (access, client) = (AccessLimits::unset(agent), ClientAddress::from(IpAddr::from([192, 0, 2, 1])));
    let left = |credential: &Credential, limiters| {
        let credential = Some(credential);
        let subject = RateLimitSubject { credential, tenant, agent, limits: &access, is_own: true, limiters };
        limits.admit(&subject, client).unwrap().charge(1).unwrap().unwrap().left
    };
    let (own, raised) = (credential(None), credential(Some(1_000)));
    let (limiters, others) = (CallerLimiters::default(), CallerLimiters::default());
    assert_eq!([left(&own, Some(&limiters)), left(&own, Some(&others)), left(&own, None)], [19, 18, 17]);
    assert_eq!(left(&raised, Some(&limiters)), 16, "what is remembered is not looked up");
    assert!(!limiters.is_outdated());
    // The key has another limiter; agent and tenant have theirs.
    assert_eq!(left(&raised, None), 15);
    assert_eq!(left(&own, Some(&others)), 14);
    assert!(others.is_outdated());
}

#[test]
fn units_are_taken_from_one_limiter_also_while_the_table_drops_it() {
    const TIMES: u32 = 20_000;
    let (table, clock) = table();
    let times = LimiterClock::new(clock.clone());
    let (table, both) = (Arc::new(table), Arc::new(Barrier::new(2)));
    let others = {
        let (table, both) = (Arc::clone(&table), Arc::clone(&both));
        thread::spawn(move || {
            for _ in 0..TIMES {
                both.wait();
                // Drops the limiter of 1 if it is unused.
                table.of(2, rate(20));
                both.wait();
            }
        })
    };
    let mut remembered_ones = 0;
    for _ in 0..TIMES {
        // All units are restored, and 2 is dropped for 1.
        clock.advance(Duration::from_secs(10));
        let limiters = remembered(&table.of(1, rate(20)));
        clock.advance(Duration::from_secs(1));
        both.wait();
        let known = get(&limiters);
        let used = known.map(|limiter| {
            assert!(limiter.take(NonZeroU32::MIN, times.now()).is_ok());
        });
        both.wait();
        if used.is_some() {
            remembered_ones += 1;
            assert_eq!(table.left(1, rate(20).unwrap()), Some(19));
        }
    }
    others.join().unwrap();
    assert!(remembered_ones > 0);
}
