//! The sweep: reads from the log of changes what was written since the one before, notified or not.
//!
//! Sweeps have a connection of their own, so that they neither wait for the pool nor for a connection that its retries
//! hide. While they fail, nobody waits for one: a probe every [`PROBE`] finds out when the database answers again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Feed;
use super::timeline::Timeline;
use crate::model::clock::ClockSample;
use crate::model::feed::Unconfirmed;
use crate::model::sources::FailPoint;
use crate::store::StoreError;
use crate::store::changes::{Sweep, SweepConnection};

/// The pause between two sweeps while they fail.
const PROBE: Duration = Duration::from_millis(250);
/// New connections that one sweep tries when the server closes them.
const NEW_CONNECTIONS: usize = 3;

/// One sweep at a time.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    state: Mutex<State>,
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Whether the last sweep failed.
    failing: AtomicBool,
    failure: Notify,
}

impl Sweeper {
    /// How many sweeps succeeded, and how many failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Whether the last sweep failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
struct State {
    connection: Option<SweepConnection>,
    horizon: Option<String>,
    timeline: Option<Timeline>,
    /// The start of the last sweep that succeeded.
    succeeded: Option<Instant>,
}

impl Feed {
    pub(super) async fn sweep_regularly(self: Arc<Self>, stop: CancellationToken) {
        let sweeping = async {
            loop {
                if self.sweep().await.is_err() {
                    sleep(PROBE).await;
                } else {
                    // A sweep on behalf of a caller that fails begins the probes at once.
                    let _ = timeout(self.options.sweep, self.sweeper.failure.notified()).await;
                }
            }
        };
        let _ = stop.run_until_cancelled(sweeping).await;
    }

    /// A sweep that began after the call, the caller's own or one it shares. Fails at once while sweeps fail.
    pub(super) async fn sweep_for_caller(&self) -> Result<(), Unconfirmed> {
        if self.sweeper.is_failing() {
            return Err(Unconfirmed);
        }
        let asked = Instant::now();
        let mut state = self.sweeper.state.lock().await;
        if state.succeeded.is_some_and(|started| started >= asked) {
            return Ok(());
        }
        if self.sweeper.is_failing() {
            return Err(Unconfirmed);
        }
        self.sweep_with(&mut state).await
    }

    /// A sweep now.
    pub(super) async fn sweep(&self) -> Result<(), Unconfirmed> {
        self.sweep_with(&mut *self.sweeper.state.lock().await).await
    }

    async fn sweep_with(&self, state: &mut State) -> Result<(), Unconfirmed> {
        let asked = timeout(self.options.patience, self.sweep_once(state));
        let swept = asked.await.unwrap_or(Err(StoreError::Late));
        let Sweeper { succeeded, failed, failing, failure, .. } = &self.sweeper;
        if swept.is_ok() { succeeded } else { failed }.fetch_add(1, Ordering::Relaxed);
        let failed_before = failing.swap(swept.is_err(), Ordering::AcqRel);
        match swept {
            Ok(()) => {
                if failed_before {
                    tracing::info!("database sweep recovered");
                }
                Ok(())
            }
            Err(error) => {
                if failed_before {
                    tracing::debug!(%error, "database sweep failed");
                } else {
                    failure.notify_one();
                    tracing::warn!(%error, "database sweep failed; answering from memory within access.stale_seconds");
                }
                Err(Unconfirmed)
            }
        }
    }

    async fn sweep_once(&self, state: &mut State) -> Result<(), StoreError> {
        let started = Instant::now();
        let swept = self.read_changes(state).await?;
        state.timeline = Some(Timeline::of(&swept));
        self.deliver(&swept.heads);
        self.proof.swept(started);
        state.horizon = Some(swept.horizon);
        state.succeeded = Some(started);
        Ok(())
    }

    /// Sweeps on the connection of the last sweep, or on up to [`NEW_CONNECTIONS`] new ones where the server closes them:
    /// a closed connection says nothing about the database. A sweep that is late is dropped with this future.
    async fn read_changes(&self, state: &mut State) -> Result<Sweep, StoreError> {
        self.sources.pause(FailPoint::Sweep).await;
        if self.sources.fails(FailPoint::Sweep) {
            return Err(StoreError::closed());
        }
        if let Some(connection) = state.connection.take() {
            match self.read_changes_on(connection, state, false).await {
                Err(error) if error.is_disconnected() => {}
                swept => return swept,
            }
        }
        for _ in 1..NEW_CONNECTIONS {
            match self.read_changes_on(self.store.sweep_connection().await?, state, true).await {
                Err(error) if error.is_disconnected() => {}
                swept => return swept,
            }
        }
        self.read_changes_on(self.store.sweep_connection().await?, state, true).await
    }

    async fn read_changes_on(
        &self,
        mut connection: SweepConnection,
        state: &mut State,
        reconnected: bool,
    ) -> Result<Sweep, StoreError> {
        let before = self.sources.clock.now();
        let swept = connection.sweep(state.horizon.as_deref()).await?;
        let after = self.sources.clock.now();
        self.sources.clock.adjust(ClockSample { before, database: swept.now, after });
        let known = state.timeline.as_ref();
        if let Some(found) = self.find_break(known, &swept, &mut connection, reconnected).await? {
            self.begin_timeline(found, &swept, &mut connection).await;
        }
        state.connection = Some(connection);
        Ok(swept)
    }
}
