//! `waggle migrate`: migrates the configured database without starting the gateway.

use std::fmt::Write;

use super::embedded::existing_database;
use super::signals::Signals;
use super::{AppError, database, startup};
use crate::config::Settings;
use crate::model::system::SystemRandom;
use crate::store::Store;
use crate::store::migrate::SchemaStatus;

/// Migrates the configured database. Returns a report for people.
///
/// # Errors
/// Those of [`start`](super::start); if the database does not answer within a minute, or a signal interrupts the command.
pub async fn migrate(settings: Settings) -> Result<String, AppError> {
    let mut signals = Signals::handle().map_err(AppError::Signals)?;
    let (database, embedded) = tokio::select! {
        database = database(&settings) => database?,
        () = signals.stop() => return Err(AppError::Interrupted),
    };
    let store = Store::new(database);
    let migrated = tokio::select! {
        migrated = startup::migrate(&store, &SystemRandom) => migrated,
        () = signals.stop() => Err(AppError::Interrupted),
    };
    store.close().await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    migrated.map(|before| text(&before, false))
}

/// Returns a report of what [`migrate`] would do. Changes nothing.
///
/// # Errors
/// If there is no database, or it cannot be read.
pub async fn schema_status(settings: Settings) -> Result<String, AppError> {
    let (database, embedded) = existing_database(&settings).await?;
    let store = Store::new(database);
    let status = store.schema().await.map_err(|error| AppError::Database(store.location(), error));
    store.close().await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    status.map(|status| text(&status, true))
}

/// The report of what was done, or would be.
fn text(schema: &SchemaStatus, only_status: bool) -> String {
    let word = if only_status { "missing" } else { "applied" };
    let mut text = String::new();
    for migration in &schema.missing {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{word} {:04} {}", migration.version, migration.name);
    }
    let known = schema.known;
    let _ = match (schema.applied, schema.missing.len()) {
        (Some(applied), _) if schema.is_newer() => writeln!(
            text,
            "the schema is at {applied:04}, newer than this version of waggle, which knows {known:04}; it is left \
             as it is"
        ),
        (_, 0) => writeln!(text, "the schema is up to date at {known:04}"),
        (applied, count) if only_status => {
            writeln!(
                text,
                "the schema is at {:04}; waggle migrate would apply {count} migrations up to {known:04}",
                applied.unwrap_or(0)
            )
        }
        (_, count) => {
            writeln!(text, "applied {count} migrations, of which {known:04} is the newest; numbers have gaps")
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrate::SchemaMigration;

    #[test]
    fn migrations_are_named_and_a_newer_schema_is_reported() {
        let missing = vec![SchemaMigration { version: 13, name: "key networks".to_owned() }];
        let behind = SchemaStatus { missing, applied: Some(12), known: 13 };
        assert_eq!(
            text(&behind, true),
            "missing 0013 key networks\nthe schema is at 0012; waggle migrate would apply 1 migrations up to 0013\n"
        );
        assert_eq!(
            text(&behind, false),
            "applied 0013 key networks\napplied 1 migrations, of which 0013 is the newest; numbers have gaps\n"
        );
        let current = SchemaStatus { missing: Vec::new(), applied: Some(13), known: 13 };
        assert_eq!(text(&current, true), "the schema is up to date at 0013\n");
        let newer = SchemaStatus { applied: Some(20), ..current };
        assert_eq!(
            text(&newer, false),
            "the schema is at 0020, newer than this version of waggle, which knows 0013; it is left as it is\n"
        );
    }
}
