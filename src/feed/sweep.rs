//! The sweep: reads from the `changes` table what was committed since the previous sweep, whether notified or
//! not.
//!
//! Sweeps use a dedicated connection, so that they neither wait for the pool nor depend on a connection that
//! the pool retries. While sweeps fail, requests do not wait for one; a sweep every [`RETRY_INTERVAL`] detects
//! when the database answers again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::service::Feed;
use super::sweeper::{Comparison, SweepState, Sweeper, Timeline};
use crate::model::clock::ClockSample;
use crate::model::feed::Unconfirmed;
use crate::model::system::FailPoint;
use crate::store::StoreError;
use crate::store::changes::{Sweep, SweepConnection};
use crate::store::horizon::Horizon;

/// Interval between sweeps while they fail.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Number of new connections that one sweep tries if the server closes them.
const NEW_CONNECTIONS: usize = 3;

impl Feed {
    pub(super) async fn sweep_regularly(self: Arc<Self>, stop: CancellationToken) {
        let sweeping = async {
            loop {
                if self.sweep().await.is_err() {
                    sleep(RETRY_INTERVAL).await;
                } else {
                    // If a sweep that a request waits for fails, retries start at once.
                    let due = aligned_timers::deadline(self.options.sweep);
                    let _ = timeout_at(due, self.sweeper.failure.notified()).await;
                }
            }
        };
        let _ = stop.run_until_cancelled(sweeping).await;
    }

    /// Waits for a sweep that started after the call, shared with other callers. Fails at once while sweeps
    /// fail.
    pub(super) async fn sweep_for_caller(self: Arc<Self>) -> Result<(), Unconfirmed> {
        if self.sweeper.is_failing() {
            return Err(Unconfirmed);
        }
        let called = Instant::now();
        let mut state = Arc::clone(&self.sweeper.state).lock_owned().await;
        if state.succeeded.is_some_and(|started| started >= called) {
            return Ok(());
        }
        if self.sweeper.is_failing() {
            return Err(Unconfirmed);
        }
        // In a task: if the caller is cancelled, the others have their sweep all the same, and its connection is not lost.
        let feed = Arc::clone(&self);
        let sweep = self.hub.tasks.spawn(async move { feed.sweep_with(&mut state).await });
        sweep.await.unwrap_or(Err(Unconfirmed))
    }

    /// Sweeps now.
    pub(super) async fn sweep(&self) -> Result<(), Unconfirmed> {
        self.sweep_with(&mut *self.sweeper.state.lock().await).await
    }

    async fn sweep_with(&self, state: &mut SweepState) -> Result<(), Unconfirmed> {
        let sweep = timeout(self.options.timeout, self.sweep_once(state));
        let swept = sweep.await.unwrap_or(Err(StoreError::Timeout));
        let Sweeper { succeeded, failed, failing, failure, .. } = &self.sweeper;
        if swept.is_ok() { succeeded } else { failed }.fetch_add(1, Ordering::Relaxed);
        let failed_before = failing.swap(swept.is_err(), Ordering::AcqRel);
        match swept {
            Ok(()) => {
                if failed_before {
                    tracing::info!("sweep recovered");
                }
                if std::mem::take(&mut state.is_expired) {
                    tracing::info!("memory is current again; requests are answered");
                }
                self.renew_epoch(state).await;
                Ok(())
            }
            Err(error) => {
                if failed_before {
                    tracing::debug!(%error, "sweep failed");
                } else {
                    failure.notify_one();
                    tracing::warn!(%error, "sweep failed; answering from memory within access.stale_seconds");
                }
                let limit = self.options.stale;
                if !state.is_expired && self.health.is_expired(limit) {
                    state.is_expired = true;
                    let stale_seconds = limit.as_secs();
                    tracing::warn!(stale_seconds, "memory expired; refusing requests until a sweep succeeds");
                }
                Err(Unconfirmed)
            }
        }
    }

    async fn sweep_once(&self, state: &mut SweepState) -> Result<(), StoreError> {
        let started = Instant::now();
        let swept = self.read_changes(state, started).await?;
        let timeline = Timeline::of(&swept);
        let id = timeline.id();
        if self.sweeper.timeline.read().as_ref() != Some(&id) {
            *self.sweeper.timeline.write() = Some(id);
        }
        state.timeline = Some(timeline);
        self.deliver(&swept.heads);
        self.health.record_sweep(started);
        self.log_long_transaction(&swept.horizon, started, state).await;
        state.horizon = Some(swept.horizon);
        state.succeeded = Some(started);
        Ok(())
    }

    /// Logs the oldest transaction in progress once it is long, and who has it.
    async fn log_long_transaction(&self, horizon: &Horizon, started: Instant, state: &mut SweepState) {
        let long = self.sweeper.open_transactions.record(horizon.in_progress(), started);
        let (Some((xid, age)), Some(connection)) = (long, &mut state.connection) else { return };
        let owner = connection.transaction_owner(xid).await.ok().flatten();
        let seconds = age.as_secs();
        tracing::warn!(xid, seconds, ?owner, "long-running transaction keeps vacuum from removing old rows");
    }

    /// Sweeps on the previous sweep's connection, or on up to [`NEW_CONNECTIONS`] new ones if the server closes
    /// them: a closed connection does not mean that the database is down. If the server closed the previous
    /// one, it probably closed those of the pool too, on which a write would fail: they are retired. A connection that
    /// does not answer in time is dropped with this future.
    async fn read_changes(&self, state: &mut SweepState, started: Instant) -> Result<Sweep, StoreError> {
        self.system.pause(FailPoint::Sweep).await;
        if self.system.fails(FailPoint::Sweep) {
            return Err(StoreError::closed());
        }
        if let Some(connection) = state.connection.take() {
            match self.read_changes_on(connection, state, (false, started)).await {
                Err(error) if error.is_disconnected() => self.store.retire_connections(),
                swept => return swept,
            }
        }
        for _ in 1..NEW_CONNECTIONS {
            match self.read_changes_on(self.store.sweep_connection().await?, state, (true, started)).await {
                Err(error) if error.is_disconnected() => {}
                swept => return swept,
            }
        }
        self.read_changes_on(self.store.sweep_connection().await?, state, (true, started)).await
    }

    async fn read_changes_on(
        &self,
        mut connection: SweepConnection,
        state: &mut SweepState,
        (reconnected, started): (bool, Instant),
    ) -> Result<Sweep, StoreError> {
        let before = self.system.clock.now();
        let swept = connection.sweep(state.horizon.as_ref()).await?;
        let after = self.system.clock.now();
        self.system.clock.adjust(ClockSample { before, database: swept.now, after });
        // The rest of the time is left to the batch that is compared last.
        let until = started + self.options.timeout / 2;
        let compared = self.compare(state, &swept, &mut connection, (reconnected, until)).await?;
        state.connection = Some(connection);
        match compared {
            Comparison::Continues => {}
            Comparison::Breaks(cause) => self.start_timeline(cause, &swept, state),
            Comparison::Unfinished => return Err(StoreError::Timeout),
        }
        Ok(swept)
    }
}
