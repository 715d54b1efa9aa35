//! Acquisitions of connections that time out: their number, and why no connection can be opened.
//!
//! sqlx's pool retries to open a connection while the server is starting, has no connection left or refuses it, and then
//! reports that the time is over. The cause is found with a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions, Connection, PgPool};
use tokio::sync::Mutex;

use super::StoreError;
use super::error::Explained;

/// How long the attempt that finds the cause may take, in addition to the time that the request has waited.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How long a cause is reported without another attempt.
const KEPT: Duration = Duration::from_secs(5);
/// The interval at which a cause is logged: while connections are scarce, some requests get one and others do not.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The acquisitions of connections of a pool.
#[derive(Debug, Default)]
pub(super) struct Acquisitions {
    timed_out: AtomicU64,
    /// Locked during an attempt to find the cause.
    found: Mutex<Found>,
}

/// Why no connection could be opened.
#[derive(Debug, Default)]
struct Found {
    cause: Option<Arc<str>>,
    at: Option<Instant>,
    logged_at: Option<Instant>,
}

impl Acquisitions {
    /// The number of those that timed out.
    pub(super) fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    /// Counts an acquisition that timed out; returns the error with its cause.
    pub(super) async fn time_out(&self, pool: &PgPool) -> StoreError {
        let number = self.timed_out.fetch_add(1, Ordering::Relaxed) + 1;
        // While another request finds the cause, none is known.
        let Ok(mut found) = self.found.try_lock() else { return StoreError::NoConnection(None) };
        if is_due(found.at, KEPT) {
            found.cause = connect_error(pool).await.or_else(|| {
                let is_full = pool.size() >= pool.options().get_max_connections();
                (!is_full).then(|| "none was opened in time; the server accepts connections again".into())
            });
            found.at = Some(Instant::now());
        }
        let error = StoreError::NoConnection(found.cause.clone());
        if is_due(found.logged_at, LOG_INTERVAL) {
            found.logged_at = Some(Instant::now());
            tracing::warn!(%error, timed_out = number, "waits for a connection to the database time out");
        }
        error
    }
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= interval)
}

/// Why no connection can be opened; `None` if one can, so that all of the pool are in use.
async fn connect_error(pool: &PgPool) -> Option<Arc<str>> {
    match tokio::time::timeout(ATTEMPT, pool.connect_options().connect()).await {
        Ok(Ok(connection)) => {
            // It is dropped if the server does not answer.
            let _ = tokio::time::timeout(ATTEMPT, connection.close()).await;
            None
        }
        Ok(Err(error)) => Some(Explained(&error).to_string().into()),
        Err(_) => Some("the server does not answer".into()),
    }
}
