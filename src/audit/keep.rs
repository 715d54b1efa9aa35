//! The upkeep of the log: partitions are made a week ahead, and dropped when all their rows are older than is kept.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::sources::Sources;
use crate::store::StoreError;
use crate::store::audit::AuditLog;
use crate::store::audit::partitions::{Dropped, day_of};

/// For how many days partitions are there before they are needed.
const AHEAD: i32 = 7;
/// How often the upkeep looks for something to do.
const EVERY: Duration = Duration::from_hours(1);

/// What the upkeep goes by.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    pub(super) retain_days: u32,
    pub(super) sources: Sources,
}

/// Makes the partitions of today and the days ahead.
pub(super) async fn make_partitions(log: &mut AuditLog, keeping: &Keeping) -> Result<(), StoreError> {
    let today = day_of(keeping.sources.clock.now());
    log.prepare(&(today..=today + AHEAD).collect()).await
}

/// Drops the partitions that are too old.
async fn drop_partitions(log: &mut AuditLog, keeping: &Keeping) -> Result<Dropped, StoreError> {
    let retain_days = i32::try_from(keeping.retain_days).unwrap_or(i32::MAX);
    log.drop_old(retain_days, keeping.sources.clock.now()).await
}

/// Looks after the partitions until `stop`.
pub(super) async fn keep(mut log: AuditLog, keeping: Keeping, stop: CancellationToken) {
    let mut tick = tokio::time::interval(EVERY);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let kept = async {
            make_partitions(&mut log, &keeping).await?;
            drop_partitions(&mut log, &keeping).await
        };
        match stop.run_until_cancelled(kept).await {
            Some(Ok(Dropped::Done(dropped @ 1..))) => {
                tracing::info!(dropped, "old partitions of the audit log were dropped");
            }
            Some(Ok(Dropped::Unsigned)) => {
                tracing::warn!(
                    "old partitions of the audit log are kept: its entries are signed, and this gateway has no key; \
                    set audit.signing_key_file"
                );
            }
            Some(Err(error)) => tracing::warn!(%error, "the partitions of the audit log are seen to later"),
            Some(Ok(Dropped::Done(0))) | None => {}
        }
    }
    log.close().await;
}
