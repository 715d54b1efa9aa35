//! What a start needs of the database: its schema and the gateway's secret, waited for with back-off.

use std::time::Duration;

use tokio::time::Instant;

use super::AppError;
use crate::model::sources::Sources;
use crate::server::gateway_slot::GatewaySlot;
use crate::store::migrate::SchemaStatus;
use crate::store::{Store, StoreError};

/// How long a start waits for another replica's migrations, and `waggle migrate` for the database.
const PATIENCE: Duration = Duration::from_mins(1);
/// After the first attempt that found the database away; twice as long after each that follows.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Brings the schema up to date and reads the gateway's secret, as soon as the database answers.
///
/// # Errors
/// When the database refuses, or a migration fails.
pub(super) async fn prepare(
    store: &Store,
    sources: &Sources,
    gateway: &GatewaySlot,
) -> Result<Vec<u8>, AppError> {
    let mut candidate = [0; 32];
    sources.random.fill(&mut candidate)?;
    let mut backoff = Backoff::new(store);
    loop {
        let prepared = async {
            let before = store.migrate(PATIENCE).await?;
            Ok::<_, StoreError>((before, store.cursor_secret(candidate).await?))
        };
        match prepared.await {
            Ok((before, secret)) => {
                report(&before);
                return Ok(secret);
            }
            Err(StoreError::Unavailable(error)) => {
                gateway.set_database_unreachable();
                backoff.wait(&error).await;
            }
            Err(error) => return Err(AppError::Database(store.location(), error)),
        }
    }
}

/// Brings the schema up to date; waits a minute for a database that is away.
///
/// # Errors
/// As [`prepare`], and when the minute is over.
pub(super) async fn migrate(store: &Store) -> Result<SchemaStatus, AppError> {
    let deadline = Instant::now() + PATIENCE;
    let mut backoff = Backoff::new(store);
    loop {
        match store.migrate(PATIENCE).await {
            Ok(before) => return Ok(before),
            Err(StoreError::Unavailable(error)) if Instant::now() < deadline => backoff.wait(&error).await,
            Err(error) => return Err(AppError::Database(store.location(), error)),
        }
    }
}

/// Logs what a start did to the schema, or that it may not know all of it.
fn report(before: &SchemaStatus) {
    let (known, applied) = (before.known, before.missing.len());
    if before.is_newer() {
        let schema = before.applied;
        tracing::warn!(schema, known, "database schema is newer than this version of waggle");
    } else if applied > 0 {
        tracing::info!(applied, schema = known, "database schema migrated");
    }
}

struct Backoff<'s> {
    store: &'s Store,
    next: Duration,
}

impl<'s> Backoff<'s> {
    fn new(store: &'s Store) -> Self {
        Self { store, next: FIRST_RETRY }
    }

    async fn wait(&mut self, error: &(dyn std::error::Error + Send + Sync)) {
        let place = self.store.location();
        tracing::warn!(
            host = place.host, port = place.port, database = place.database, %error,
            retry_in_ms = u64::try_from(self.next.as_millis()).unwrap_or(u64::MAX),
            "database unreachable"
        );
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LONGEST_RETRY);
    }
}
