//! Acknowledgements of a few replicas, without a database.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::Replicas;
use super::state::MAX_OPEN;
use crate::model::scope::{Revision, Scope};
use crate::store::notify::{AckRequestId, ListenerId, ListenerState};

const LEASE: Duration = Duration::from_millis(500);
const ME: ListenerId = ListenerId(100);
const OTHER: ListenerId = ListenerId(101);
const THIRD: ListenerId = ListenerId(102);

type Shown = (ListenerId, Option<ListenerState>);

fn replicas() -> Replicas {
    Replicas::new(Uuid::max(), LEASE)
}

fn scope() -> Scope {
    Scope(Uuid::from_u128(1))
}

/// A connection whose replica has acknowledged this request, after so many probes.
fn shows(id: ListenerId, request: u64, probes: u64) -> Shown {
    let acknowledged = (request > 0).then_some(AckRequestId(request));
    (id, Some(ListenerState { id, acknowledged, probes }))
}

/// Sends a request and receives it back.
fn request(replicas: &Replicas, number: u64, now: Instant) -> AckRequestId {
    let request = AckRequestId(number);
    replicas.record_own_request(scope(), Revision(1), request, now);
    replicas.record_request(request);
    request
}

#[test]
fn request_is_acknowledged_once_all_live_replicas_answered() {
    let replicas = replicas();
    let start = Instant::now();
    let at = |millis: u64| start + Duration::from_millis(1_000 + millis);
    let evaluate =
        |shown: &[Shown], millis| replicas.evaluate(shown, 0, at(millis)).0.map(|request| request.0);
    let done = |number| replicas.state.lock().is_acknowledged(AckRequestId(number));

    replicas.record_own_request(scope(), Revision(1), AckRequestId(1), start);
    replicas.start_listening(ME, start);
    let alone = |request| [shows(ME, request, request)];
    evaluate(&alone(1), 0);
    assert!(!done(1), "own request not received yet");
    replicas.record_request(AckRequestId(1));
    replicas.start_listening(ME, at(0) - LEASE);
    evaluate(&alone(1), 0);
    assert!(!done(1), "a replica may exist that is not registered yet");
    replicas.start_listening(ME, start);
    evaluate(&[shows(OTHER, 1, 1)], 0);
    assert!(!done(1), "this replica is not registered");
    assert_eq!(evaluate(&alone(1), 0), None, "no other replica to notify");
    assert!(done(1));

    request(&replicas, 2, at(0));
    assert_eq!(evaluate(&[shows(ME, 2, 2), shows(OTHER, 0, 1)], 0), None, "has received no request");
    assert_eq!(evaluate(&[shows(ME, 2, 3), shows(OTHER, 1, 2)], 1), None, "has received an older request");
    assert_eq!(evaluate(&[shows(ME, 2, 4), shows(OTHER, 77, 3)], 2), None, "an unknown request");
    assert_eq!(evaluate(&[shows(ME, 1, 4), shows(OTHER, 2, 4)], 3), None, "not received here in time");
    assert!(!done(2));
    assert_eq!(evaluate(&[shows(ME, 2, 5), shows(OTHER, 2, 5)], 4), Some(2));
    assert!(done(2));

    request(&replicas, 3, at(5));
    replicas.record_request(AckRequestId(44));
    let shown = |probes| [shows(ME, 44, probes), shows(OTHER, 44, probes), shows(THIRD, 2, 1)];
    assert_eq!(evaluate(&shown(6), 400), None, "the third replica still trusts its memory");
    assert_eq!(evaluate(&shown(7), 900), None, "the third replica still trusts its memory");
    assert_eq!(evaluate(&shown(8), 901), Some(3), "a later request of another replica acknowledges this one");
    request(&replicas, 4, at(950));
    let shown = [shows(ME, 4, 9), shows(OTHER, 4, 9), shows(THIRD, 2, 1)];
    assert_eq!(evaluate(&shown, 950), Some(4), "a silent replica delays once");
}

#[test]
fn closed_connection_is_waited_for_and_forgotten_after_the_trust_period() {
    let replicas = replicas();
    let start = Instant::now();
    let at = |millis: u64| start + Duration::from_millis(1_000 + millis);
    replicas.start_listening(ME, start);
    request(&replicas, 1, at(0));
    let shown = |probes| [shows(ME, 1, probes), (OTHER, None)];
    assert_eq!(replicas.evaluate(&shown(1), 0, at(0)), (None, Vec::new()));
    assert_eq!(replicas.evaluate(&shown(2), 0, at(500)), (None, Vec::new()));
    assert_eq!(replicas.evaluate(&shown(3), 0, at(501)), (Some(AckRequestId(1)), vec![OTHER]));
}

#[test]
fn replica_that_registers_after_a_request_need_not_acknowledge_it() {
    let replicas = replicas();
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    replicas.start_listening(ME, start);
    request(&replicas, 1, now);
    let received = replicas.collecting(LEASE, now).unwrap();
    let others = |joined| [shows(ME, 1, 1), shows(OTHER, joined, 1), shows(THIRD, 0, 1)];
    assert_eq!(replicas.evaluate(&others(0)[..2], received, now).0, None);
    assert_eq!(replicas.evaluate(&others(1), received, now).0, Some(AckRequestId(1)));
    assert_eq!(replicas.collecting(LEASE, now), None);

    request(&replicas, 2, now);
    let shown = [shows(ME, 2, 2), shows(OTHER, 2, 2), shows(THIRD, 0, 2)];
    assert_eq!(replicas.evaluate(&shown, 2, now).0, None, "it was registered before this one");
}

#[test]
fn own_receipt_counts_before_it_is_shown_unless_it_came_during_the_read() {
    let replicas = replicas();
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    replicas.start_listening(ME, start);
    assert_eq!(replicas.others(), 0);
    request(&replicas, 1, now);
    let received = replicas.collecting(LEASE, now).unwrap();
    request(&replicas, 2, now);
    replicas.evaluate(&[shows(ME, 0, 1)], received, now);
    let done = |number| replicas.state.lock().is_acknowledged(AckRequestId(number));
    assert!(done(1));
    assert!(!done(2), "another replica may have registered between");
    let received = replicas.collecting(LEASE, now).unwrap();
    replicas.evaluate(&[shows(ME, 0, 2), shows(OTHER, 0, 1)], received, now);
    assert!(!done(2), "another replica has not acknowledged it");
    assert_eq!(replicas.others(), 1);
}

#[test]
fn oldest_requests_are_given_up_while_none_returns() {
    let replicas = replicas();
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    replicas.start_listening(ME, start);
    let sent = MAX_OPEN as u64 + 2;
    for number in (1..=sent).chain([sent]) {
        replicas.record_own_request(scope(), Revision(1), AckRequestId(number), now);
    }
    for given_up in [1, 2] {
        replicas.record_request(AckRequestId(given_up));
        assert_eq!(replicas.collecting(LEASE, now), None);
    }
    replicas.record_request(AckRequestId(3));
    assert!(replicas.collecting(LEASE, now).is_some());
    replicas.record_request(AckRequestId(sent));
    replicas.evaluate(&[shows(ME, sent, 1)], sent, now);
    let done = |number| replicas.state.lock().is_acknowledged(AckRequestId(number));
    assert!(done(1) && done(sent), "a later request serves what waits for one that was given up");
}

#[tokio::test]
async fn acknowledged_revision_needs_no_request_and_a_newer_one_does() {
    let replicas = replicas();
    let wait = async |revision| {
        timeout(Duration::from_millis(50), replicas.wait_for_acks(scope(), Revision(revision))).await
    };
    assert_eq!(wait(1).await, Ok(false), "the scope is not followed");
    replicas.record_followed(scope(), Instant::now());
    replicas.record_raised(scope(), Revision(1));
    assert_eq!(wait(1).await, Ok(false), "no request came");
    replicas.record_request(AckRequestId(5));
    assert!(wait(1).await.is_err(), "it is requested and not acknowledged");
    replicas.record_acknowledged(AckRequestId(5));
    assert_eq!((wait(1).await, wait(2).await), (Ok(true), Ok(false)));

    // A request before the revision says nothing about it.
    replicas.record_request(AckRequestId(6));
    replicas.record_raised(scope(), Revision(2));
    replicas.record_acknowledged(AckRequestId(6));
    assert_eq!(wait(2).await, Ok(false));
    replicas.start_listening(ME, Instant::now());
    assert_eq!(wait(1).await, Ok(false), "messages may have been missed");
}

#[tokio::test]
async fn newer_revisions_do_not_prolong_a_wait() {
    let replicas = replicas();
    replicas.record_followed(scope(), Instant::now());
    replicas.record_raised(scope(), Revision(1));
    replicas.record_request(AckRequestId(1));
    let newer = async {
        tokio::task::yield_now().await;
        replicas.record_raised(scope(), Revision(2));
        replicas.record_request(AckRequestId(2));
        replicas.record_acknowledged(AckRequestId(1));
    };
    let wait = timeout(Duration::from_secs(1), replicas.wait_for_acks(scope(), Revision(1)));
    assert_eq!(tokio::join!(wait, newer).0, Ok(true));
}
