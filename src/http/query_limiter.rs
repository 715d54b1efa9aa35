//! The bound on the queries of the administration API: its calls use a part of the pool's connections only, in turn between
//! those who pay for them.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::{FairPermit, FairSemaphore};
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;

/// The maximum number of concurrent calls, whatever the size of the pool: each may have several copies of a content in memory.
const MAX_CONCURRENT: usize = 8;
/// The maximum number of concurrent reads of the audit log among them, since each may take seconds.
const MAX_AUDIT_READS: usize = 2;
/// How many calls wait; past it, the payer with the most of them loses its newest one.
const MAX_WAITING: usize = 1_024;
/// How long each waits.
const WAIT: Duration = Duration::from_secs(10);

/// A permit for the queries of one call.
pub type QueryPermit = FairPermit<Payer>;

/// Bounds the number of calls that query the database concurrently. Calls that wait are admitted in turn between their payers.
pub struct QueryLimiter {
    calls: Arc<FairSemaphore<Payer>>,
    audit_reads: Arc<FairSemaphore<Payer>>,
    feed: Arc<dyn ChangeFeed>,
}

impl QueryLimiter {
    /// Permits calls that use a quarter of these connections, at least two and at most `MAX_CONCURRENT`.
    pub fn new(connections: usize, feed: Arc<dyn ChangeFeed>) -> Self {
        let calls = (connections / 4).clamp(2, MAX_CONCURRENT);
        let audit_reads = (calls / 2).min(MAX_AUDIT_READS);
        Self {
            calls: FairSemaphore::new(calls, MAX_WAITING),
            audit_reads: FairSemaphore::new(audit_reads, MAX_WAITING),
            feed,
        }
    }

    /// Waits for a permit to query.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] after ten seconds, or if too many calls of the payer wait; [`Fault::StorageUnavailable`]
    /// instead while the database is unreachable.
    pub async fn acquire(&self, payer: Payer) -> Result<QueryPermit, Fault> {
        self.acquire_from(&self.calls, payer).await
    }

    /// Waits for a permit to read the audit log, without a permit to query, which the read takes as well.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire).
    pub async fn acquire_audit_read(&self, payer: Payer) -> Result<QueryPermit, Fault> {
        self.acquire_from(&self.audit_reads, payer).await
    }

    async fn acquire_from(
        &self,
        permits: &Arc<FairSemaphore<Payer>>,
        payer: Payer,
    ) -> Result<QueryPermit, Fault> {
        permits.acquire(payer, WAIT).await.ok_or_else(|| self.cause_of(Fault::BUSY))
    }

    /// The cause of a wait that failed with `fault` ([`ChangeFeed::cause_of`]).
    pub fn cause_of(&self, fault: Fault) -> Fault {
        self.feed.cause_of(fault)
    }
}

impl std::fmt::Debug for QueryLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryLimiter").field("calls", &self.calls).finish_non_exhaustive()
    }
}
