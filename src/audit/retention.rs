//! Retention: creates partitions a week ahead and drops those whose rows have all expired.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::system::System;
use crate::store::StoreError;
use crate::store::audit::AuditLog;
use crate::store::audit::partitions::{Dropped, day_of};

/// Number of days for which partitions are created in advance.
const DAYS_AHEAD: i32 = 7;
/// Interval between runs.
const INTERVAL: Duration = Duration::from_hours(1);
/// The wait for a clock that is not confirmed.
const CLOCK_RETRY: Duration = Duration::from_mins(1);

/// Options of the retention task.
#[derive(Debug, Clone)]
pub(super) struct RetentionOptions {
    pub(super) retain_days: u32,
    pub(super) system: System,
}

/// Creates the partitions of today and the days ahead.
pub(super) async fn create_partitions(
    log: &mut AuditLog,
    options: &RetentionOptions,
) -> Result<(), StoreError> {
    let today = day_of(options.system.clock.now());
    log.prepare(&(today..=today + DAYS_AHEAD).collect()).await
}

/// Drops the expired partitions.
async fn drop_partitions(log: &mut AuditLog, options: &RetentionOptions) -> Result<Dropped, StoreError> {
    let retain_days = i32::try_from(options.retain_days).unwrap_or(i32::MAX);
    log.drop_old(retain_days, options.system.clock.now()).await
}

/// Runs the retention task until `stop`.
pub(super) async fn run(mut log: AuditLog, options: RetentionOptions, stop: CancellationToken) {
    let mut wait = Duration::ZERO;
    while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        let is_confirmed = options.system.clock.is_confirmed();
        wait = if is_confirmed { INTERVAL } else { CLOCK_RETRY };
        let run = async {
            create_partitions(&mut log, &options).await?;
            if is_confirmed { drop_partitions(&mut log, &options).await } else { Ok(Dropped::Done(0)) }
        };
        match stop.run_until_cancelled(run).await {
            Some(Ok(Dropped::Done(partitions @ 1..))) => {
                tracing::info!(partitions, "audit partitions dropped");
            }
            Some(Ok(Dropped::Unsigned)) => {
                tracing::warn!(
                    "audit partitions not dropped: the ledger is signed, and this gateway has no key; \
                    set audit.signing_key_file"
                );
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "audit partition maintenance failed; retrying in an hour");
            }
            Some(Ok(Dropped::Done(0))) | None => {}
        }
        // Not kept for an hour: beside the replicas' other connections, it would take a place of the server's for each.
        log.close().await;
    }
}
