//! The limits of each cause of fetches.

use std::time::Duration;

use content_source::FetchError;
use tokio::time::Instant;
use uuid::Uuid;

use super::{FetchPermit, Gates, quota};
use crate::model::connection::ConnectionLimits;
use crate::model::ids::{ConnectionId, TenantId};
use crate::model::scope::Revision;
use crate::sources::cause::FetchCause;

const POLL: FetchCause = FetchCause::Poll { is_known: true };
const FIRST_POLL: FetchCause = FetchCause::Poll { is_known: false };
const CAUSES: [FetchCause; 4] = [FetchCause::Tenant, FetchCause::Anonymous, POLL, FIRST_POLL];

#[tokio::test]
async fn fetch_waits_for_a_permit_among_the_concurrent_ones_of_its_tenant() {
    const SOON: Duration = Duration::from_millis(10);
    const LATER: Duration = Duration::from_mins(1);
    let gates = Gates::new(0);
    let limits = ConnectionLimits { concurrent: 2, ..ConnectionLimits::default() };
    let connection = (ConnectionId(Uuid::from_u128(1)), Revision(1));
    let pass = async |tenant, within| {
        let tenant = TenantId(Uuid::from_u128(tenant));
        gates.pass(connection, &limits, (tenant, FetchCause::Tenant), Instant::now() + within).await
    };
    let (first, _second) = (pass(1, LATER).await.unwrap(), pass(1, LATER).await.unwrap());
    assert_eq!(pass(1, SOON).await.unwrap_err(), FetchError::Busy);
    assert!(pass(2, SOON).await.is_ok(), "another tenant has permits of its own");
    let (third, ()) = tokio::join!(pass(1, LATER), async { drop(first) });
    assert!(third.is_ok());
}

/// A fetch of one tenant.
async fn pass(
    gates: &Gates,
    limits: &ConnectionLimits,
    cause: FetchCause,
) -> Result<FetchPermit, FetchError> {
    let (connection, tenant) = (ConnectionId(Uuid::from_u128(1)), TenantId(Uuid::from_u128(1)));
    let soon = Instant::now() + Duration::from_millis(10);
    let permit = gates.pass((connection, Revision(1)), limits, (tenant, cause), soon).await?;
    permit.admit()?;
    Ok(permit)
}

#[tokio::test]
async fn anonymous_callers_leave_places_and_rate_to_others() {
    let limits = ConnectionLimits { concurrent: 4, ..ConnectionLimits::default() };
    let gates = Gates::new(0);
    let held = [
        pass(&gates, &limits, FetchCause::Anonymous).await,
        pass(&gates, &limits, FetchCause::Anonymous).await,
    ];
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(pass(&gates, &limits, FetchCause::Anonymous).await.unwrap_err(), FetchError::Busy);
    assert!(pass(&gates, &limits, FetchCause::Tenant).await.is_ok());
    drop(held);
    // Slow enough that no unit is added meanwhile.
    let limits = ConnectionLimits { per_second: 1, burst: 400, ..ConnectionLimits::default() };
    let gates = Gates::new(0);
    let mut admitted = 0;
    while admitted < 400 && pass(&gates, &limits, FetchCause::Anonymous).await.is_ok() {
        admitted += 1;
    }
    assert!((100..200).contains(&admitted), "{admitted}");
    assert!(pass(&gates, &limits, FetchCause::Tenant).await.is_ok());
}

#[tokio::test]
async fn places_of_each_cause_are_a_part_of_those_of_the_tenant() {
    for (concurrent, of_tenant, of_anonymous, of_polls) in
        [(1, 1, 1, 1), (2, 2, 1, 1), (3, 3, 1, 1), (4, 4, 2, 1), (8, 8, 4, 2), (16, 16, 8, 4)]
    {
        let limits = ConnectionLimits { concurrent, ..ConnectionLimits::default() };
        for (cause, expected) in
            [(FetchCause::Tenant, of_tenant), (FetchCause::Anonymous, of_anonymous), (POLL, of_polls)]
        {
            let (gates, mut held) = (Gates::new(0), Vec::new());
            while let Ok(permit) = pass(&gates, &limits, cause).await {
                held.push(permit);
            }
            assert_eq!(held.len(), expected, "{cause:?} of {concurrent}");
        }
    }
    // Anonymous callers and polls together leave some to the tenant.
    let (gates, limits) = (Gates::new(0), ConnectionLimits { concurrent: 3, ..ConnectionLimits::default() });
    let held = [pass(&gates, &limits, FetchCause::Anonymous).await, pass(&gates, &limits, POLL).await];
    assert!(held.iter().all(Result::is_ok) && pass(&gates, &limits, FetchCause::Tenant).await.is_ok());
}

/// Fetches for a cause, which fails so if it is admitted. Returns whether the tenant's circuit is open, and that of the cause.
async fn fail(gates: &Gates, cause: FetchCause, error: FetchError) -> Result<(bool, bool), FetchError> {
    let permit = pass(gates, &ConnectionLimits::default(), cause).await?;
    let status = permit.record::<()>(&Err(error));
    Ok((status.is_open, status.cause_until.is_some()))
}

/// Whether a fetch of each cause is admitted now, the last two of polls.
async fn admitted(gates: &Gates) -> [bool; 4] {
    let mut admitted = [false; 4];
    for (cause, admitted) in CAUSES.into_iter().zip(&mut admitted) {
        *admitted = pass(gates, &ConnectionLimits::default(), cause).await.is_ok();
    }
    admitted
}

#[tokio::test]
async fn failures_open_the_circuit_of_their_cause_alone() {
    let gates = Gates::new(0);
    for (cause, expected) in
        [(FetchCause::Anonymous, [true, false, true, true]), (POLL, [true, true, false, false])]
    {
        for is_open in [false, false, false, false, true] {
            assert_eq!(fail(&gates, cause, FetchError::Timeout).await, Ok((false, is_open)), "{cause:?}");
        }
        assert_eq!(admitted(&gates).await, expected, "{cause:?}");
        gates.clear();
    }
    // A source that fails for callers with a credential fails for all.
    for is_open in [false, false, false, false, true] {
        assert_eq!(fail(&gates, FetchCause::Tenant, FetchError::Timeout).await, Ok((is_open, false)));
    }
    assert_eq!(admitted(&gates).await, [false; 4]);
}

#[tokio::test]
async fn content_that_was_never_fetched_opens_no_circuit_of_polls() {
    let gates = Gates::new(0);
    for _ in 0..20 {
        assert_eq!(fail(&gates, FIRST_POLL, FetchError::Timeout).await, Ok((false, false)));
    }
    assert_eq!(admitted(&gates).await, [true; 4]);
}

#[tokio::test]
async fn pause_that_a_source_asks_of_the_client_holds_for_every_cause() {
    let gates = Gates::new(0);
    let retry_after = Some(20);
    for (cause, expected) in [
        (FetchCause::Anonymous, [true, false, true, true]),
        (POLL, [true, true, false, false]),
        (FIRST_POLL, [true, true, false, false]),
    ] {
        assert_eq!(fail(&gates, cause, FetchError::Status { retry_after }).await, Ok((false, true)));
        assert_eq!(admitted(&gates).await, expected, "{cause:?}");
        gates.clear();
        assert_eq!(fail(&gates, cause, FetchError::RateLimited { retry_after }).await, Ok((true, true)));
        assert_eq!(admitted(&gates).await, [false; 4], "{cause:?}");
        gates.clear();
        // Without a pause it is a failure as others are.
        let failed = fail(&gates, cause, FetchError::RateLimited { retry_after: None }).await;
        assert_eq!(failed, Ok((false, false)));
        gates.clear();
    }
}

#[test]
fn polls_use_at_most_half_of_the_rate() {
    for (per_second, burst, of_fetches, of_polls) in
        [(1, 1, 1_000_000, 2_000_000), (3, 5, 333_333, 666_666), (50, 100, 20_000, 40_000)]
    {
        let limits = ConnectionLimits { per_second, burst, ..ConnectionLimits::default() };
        for (part, micros) in [(1, of_fetches), (2, of_polls)] {
            let quota = quota(&limits, part);
            let interval = quota.replenish_interval().as_micros();
            assert_eq!(Duration::from_micros(micros).as_micros(), interval, "{per_second} / {part}");
            assert_eq!(quota.burst_size().get(), (burst / part).max(1), "{burst} / {part}");
        }
    }
}
