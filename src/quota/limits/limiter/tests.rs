//! Tests of buckets, and of header fields.

use std::time::Duration;

use super::{
    Bucket, DefaultPolicies, Limiter, RatePolicy, SECOND, Shortage, policy_header, seconds_to_restore,
    structured_item,
};
use crate::model::limits::{LimitScope, Rate};

fn bucket() -> Bucket {
    Bucket::new(Rate::new(10, 20).unwrap())
}

#[test]
fn check_returns_the_result_of_take_and_takes_nothing() {
    let bucket = bucket();
    assert_eq!(bucket.take(20, 0), Ok(0));
    let short = Err(Shortage::Until(Duration::from_millis(300)));
    assert_eq!([bucket.check(3, 0), bucket.check(3, 0)], [short; 2]);
    assert_eq!(bucket.take(3, 0).map(drop), short);
    assert_eq!(bucket.check(3, SECOND * 3 / 10), Ok(()));
    assert_eq!(bucket.take(3, SECOND * 3 / 10), Ok(0));
}

#[test]
fn units_above_the_burst_are_never_available() {
    assert_eq!([bucket().check(21, SECOND), bucket().check(20, 0)], [Err(Shortage::Never), Ok(())]);
}

#[test]
fn an_idle_bucket_is_refilled_up_to_its_burst() {
    let bucket = bucket();
    assert!(bucket.is_full(0));
    assert_eq!(bucket.take(5, SECOND), Ok(15));
    assert_eq!((bucket.left(SECOND), bucket.is_full(SECOND)), (15, false));
    assert_eq!((bucket.left(100 * SECOND), bucket.is_full(100 * SECOND)), (20, true));
}

#[test]
fn a_limiter_shared_by_two_scopes_has_a_policy_for_each() {
    let rate = Rate::new(10, 20).unwrap();
    let limiter = Limiter::new(Some(rate));
    for _ in 0..2 {
        assert_eq!(limiter.policy_header(LimitScope::Key, rate), r#""key";q=20;w=2"#);
        assert_eq!(limiter.policy_header(LimitScope::Agent, rate), r#""agent";q=20;w=2"#);
    }
}

#[test]
fn longest_name_and_largest_numbers_fit() {
    for name in LimitScope::ALL.map(LimitScope::as_str).into_iter().chain(["streams"]) {
        let expected = format!("\"{name}\";q={0};w={0}", u64::MAX);
        assert_eq!(structured_item(name, &[("q", u64::MAX), ("w", u64::MAX)]), expected);
    }
}

#[test]
fn refill_time_is_rounded_up_to_seconds() {
    let rate = Rate::new(3, 10).unwrap();
    assert_eq!([0, 1, 3, 4].map(|units| seconds_to_restore(units, rate)), [0, 1, 1, 2]);
}

#[test]
fn default_policy_is_that_of_its_scope_and_rate() {
    let default = |scope| Rate::new(1, 10 + scope as u32);
    let policies = DefaultPolicies::new(default);
    for scope in LimitScope::ALL {
        let rate = default(scope).unwrap();
        let policy = policies.get(scope, rate).unwrap();
        assert_eq!(policy, RatePolicy::new(scope, rate, policy_header(scope, rate)));
        assert_eq!(policies.get(scope, Rate::new(2, 10).unwrap()), None);
    }
}
