//! Prepares the database: migrates its schema and reads the gateway's secret, with retries while it is unreachable.

use std::time::Duration;

use tokio::time::Instant;

use super::AppError;
use crate::model::backoff::Backoff;
use crate::model::system::{Random, System};
use crate::server::gateway_slot::GatewaySlot;
use crate::store::migrate::SchemaStatus;
use crate::store::{Store, StoreError};

/// How long `waggle migrate` waits for the database.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The delay after a failed attempt.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));

/// Migrates the schema and reads the gateway's secret, as soon as the database answers.
///
/// # Errors
/// If the database refuses, or a migration fails.
pub(super) async fn prepare(
    store: &Store,
    system: &System,
    gateway: &GatewaySlot,
) -> Result<Vec<u8>, AppError> {
    let mut candidate = [0; 32];
    system.random.fill(&mut candidate)?;
    let mut attempts = Attempts::new(store, system.random.as_ref());
    loop {
        let prepared = async {
            let before = store.migrate().await?;
            Ok::<_, StoreError>((before, store.cursor_secret(candidate).await?))
        };
        match prepared.await {
            Ok((before, secret)) => {
                report(&before);
                return Ok(secret);
            }
            Err(error) if error.is_unavailable() => {
                gateway.set_database_unreachable();
                attempts.wait(&error).await;
            }
            Err(error) => return Err(AppError::Database(store.location(), error)),
        }
    }
}

/// Migrates the schema; waits up to a minute for an unreachable database, from the first failure on.
///
/// # Errors
/// As [`prepare`], and if the minute is over.
pub(super) async fn migrate(store: &Store, random: &dyn Random) -> Result<SchemaStatus, AppError> {
    let mut deadline = None;
    let mut attempts = Attempts::new(store, random);
    loop {
        match store.migrate().await {
            Ok(before) => return Ok(before),
            Err(error)
                if error.is_unavailable()
                    && Instant::now() < *deadline.get_or_insert_with(|| Instant::now() + TIMEOUT) =>
            {
                attempts.wait(&error).await;
            }
            Err(error) => return Err(AppError::Database(store.location(), error)),
        }
    }
}

/// Logs the migrations applied, or that the schema is newer than this version.
fn report(before: &SchemaStatus) {
    let (known, missing) = (before.known, before.missing.len());
    if before.is_newer() {
        let schema = before.applied;
        tracing::warn!(schema, known, "database schema is newer than this version of waggle");
    } else if missing > 0 {
        let from = before.applied.unwrap_or(0);
        tracing::info!(migrations = missing, from, to = known, "database schema migrated");
    }
}

/// Failed attempts to reach the database.
struct Attempts<'s> {
    store: &'s Store,
    random: &'s dyn Random,
    failures: u32,
}

impl<'s> Attempts<'s> {
    fn new(store: &'s Store, random: &'s dyn Random) -> Self {
        Self { store, random, failures: 0 }
    }

    async fn wait(&mut self, error: &StoreError) {
        let place = self.store.location();
        let delay = RETRY.jittered(self.failures, self.random);
        tracing::warn!(
            host = place.host, port = place.port, database = place.database, %error,
            retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            "database unreachable"
        );
        tokio::time::sleep(delay).await;
        self.failures = self.failures.saturating_add(1);
    }
}
