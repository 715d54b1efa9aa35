//! The sweep: reads from the log of changes what was written since the one before, wakes or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::model::feed::Unconfirmed;

/// For so long after a sweep that failed, callers are told so without another try: a database that swallows packets
/// would hold each of them for its whole patience.
const AFTER_FAILURE: Duration = Duration::from_millis(250);

/// One sweep at a time.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    state: Mutex<State>,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Sweeper {
    /// How many sweeps succeeded, and how many failed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct State {
    horizon: Option<String>,
    /// The start of the last sweep that succeeded.
    succeeded: Option<Instant>,
    /// The end of the last sweep, if it failed.
    failed: Option<Instant>,
}

impl Feed {
    pub(super) async fn sweep_regularly(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.options.sweep);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let Some(swept) = stop.run_until_cancelled(self.sweep()).await else { return };
            if swept.is_err() != failing {
                failing = swept.is_err();
                if failing {
                    tracing::warn!(
                        "the database does not answer the sweep; answering from memory for a while"
                    );
                } else {
                    tracing::info!("the database answers the sweep again");
                }
            }
        }
    }

    /// A sweep that began after the call, the caller's own or one it shares.
    pub(super) async fn sweep_for_caller(&self) -> Result<(), Unconfirmed> {
        let asked = Instant::now();
        let mut state = self.sweeper.state.lock().await;
        if state.succeeded.is_some_and(|started| started >= asked) {
            return Ok(());
        }
        if state.failed.is_some_and(|at| at.elapsed() < AFTER_FAILURE) {
            return Err(Unconfirmed);
        }
        self.sweep_with(&mut state).await
    }

    /// A sweep now.
    pub(super) async fn sweep(&self) -> Result<(), Unconfirmed> {
        self.sweep_with(&mut *self.sweeper.state.lock().await).await
    }

    async fn sweep_with(&self, state: &mut State) -> Result<(), Unconfirmed> {
        let swept = self.sweep_once(state).await;
        let Sweeper { succeeded, failed, .. } = &self.sweeper;
        if swept.is_ok() { succeeded } else { failed }.fetch_add(1, Ordering::Relaxed);
        swept
    }

    async fn sweep_once(&self, state: &mut State) -> Result<(), Unconfirmed> {
        let started = Instant::now();
        let asked = tokio::time::timeout(self.options.patience, self.store.sweep(state.horizon.as_deref()));
        let swept = match asked.await {
            Ok(Ok(swept)) => swept,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a sweep failed");
                state.failed = Some(Instant::now());
                return Err(Unconfirmed);
            }
            Err(_) => {
                state.failed = Some(Instant::now());
                return Err(Unconfirmed);
            }
        };
        self.deliver(&swept.heads);
        self.proof.swept(started);
        *state = State { horizon: Some(swept.horizon), succeeded: Some(started), failed: None };
        Ok(())
    }
}
