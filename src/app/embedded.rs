//! Which database: the configured one, or the private one.

use secrecy::ExposeSecret;
use secrecy::SecretString;
use sqlx::postgres::PgConnectOptions;

use super::AppError;
use crate::config::Settings;
use crate::store::StoreOptions;
use crate::store::embedded::{Embedded, EmbeddedOptions};

/// How to reach the database, and the private one where it is that.
///
/// # Errors
/// When a URL has not the form of one, or the private database cannot be started.
pub async fn database(settings: &Settings) -> Result<(StoreOptions, Option<Embedded>), AppError> {
    let configured = &settings.database;
    let (connect, listen, embedded) = if let Some(url) = &configured.url {
        let connect = parse("database.url", url)?;
        let listen =
            configured.listen_url.as_ref().map(|url| parse("database.listen_url", url)).transpose()?;
        (connect.clone(), listen.unwrap_or(connect), None)
    } else {
        let mut options = EmbeddedOptions::new(&settings.embedded.data_dir);
        options.bin_dir.clone_from(&settings.embedded.bin_dir);
        let embedded = Embedded::start(options).await?;
        (embedded.connect_options(), embedded.connect_options(), Some(embedded))
    };
    let options = StoreOptions {
        connect,
        listen,
        max_connections: configured.max_connections,
        acquire: configured.acquire,
        statement: configured.statement,
        lock: configured.lock,
    };
    Ok((options, embedded))
}

fn parse(setting: &'static str, url: &SecretString) -> Result<PgConnectOptions, AppError> {
    let options: PgConnectOptions = url
        .expose_secret()
        .parse()
        .map_err(|error: sqlx::Error| AppError::Url(setting, error.to_string()))?;
    Ok(options.application_name("waggle"))
}
