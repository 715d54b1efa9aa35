//! Selects the database: the configured one, or the embedded one.

use std::path::PathBuf;

use embedded_postgres::{Embedded, EmbeddedOptions};
use secrecy::{ExposeSecret, SecretString};

use super::AppError;
use crate::config::{self, Settings};
use crate::store::{self, StoreOptions};

/// The embedded database and its role.
const NAME: &str = "waggle";

/// As [`database`], for commands that only read: no embedded database is created.
///
/// # Errors
/// As [`database`], and if there is none.
pub(super) async fn existing_database(
    settings: &Settings,
) -> Result<(StoreOptions, Option<Embedded>), AppError> {
    let data_dir = &settings.embedded.data_dir;
    if settings.database.url.is_none() && !Embedded::exists(data_dir)? {
        return Err(AppError::NoDatabase(data_dir.display().to_string()));
    }
    database(settings).await
}

/// The options of the embedded database.
pub(super) fn options(settings: &Settings) -> EmbeddedOptions {
    let config::Embedded { bin_dir, data_dir, path, runtime_dir } = settings.embedded.clone();
    let runtime_dir = runtime_dir.map(PathBuf::from);
    EmbeddedOptions { bin_dir, path, runtime_dir, ..EmbeddedOptions::new(NAME, data_dir) }
}

/// The options for connecting to the database, and the embedded database if that is the one in use.
///
/// # Errors
/// If a URL is malformed, or the embedded database cannot be started.
pub async fn database(settings: &Settings) -> Result<(StoreOptions, Option<Embedded>), AppError> {
    let configured = &settings.database;
    let (connect, listen, owner, embedded) = if let Some(url) = &configured.url {
        let parse = |setting, url: &SecretString| {
            store::parse_url(url.expose_secret()).map_err(|error| AppError::Url(setting, error))
        };
        let connect = parse("database.url", url)?;
        let listen =
            configured.listen_url.as_ref().map(|url| parse("database.listen_url", url)).transpose()?;
        let owner = configured.owner_url.as_ref().map(|url| parse("database.owner_url", url)).transpose()?;
        (connect.clone(), listen.unwrap_or(connect), owner, None)
    } else {
        let embedded = Embedded::start(options(settings)).await?;
        (embedded.connect_options(), embedded.connect_options(), None, Some(embedded))
    };
    let options = StoreOptions {
        connect,
        listen,
        owner,
        max_connections: configured.max_connections,
        acquire: configured.acquire,
        statement: configured.statement,
        lock: configured.lock,
    };
    Ok((options, embedded))
}

#[cfg(test)]
mod tests {
    use super::database;
    use crate::config::{self, Environment, Flags, Purpose};

    /// The hosts that queries and notifications use with these settings.
    async fn hosts(variables: &[(&str, &str)]) -> [String; 2] {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: Environment = variables.iter().map(own).collect();
        let loaded = config::load(&environment, &Flags::default(), Purpose::Assist).ok().unwrap();
        let (options, _) = database(&loaded.settings).await.unwrap();
        [options.connect, options.listen].map(|options| options.get_host().to_owned())
    }

    #[tokio::test]
    async fn notifications_have_a_url_of_their_own_if_one_is_set() {
        let url = ("WAGGLE_DATABASE__URL", "postgres://pooler.example/waggle");
        assert_eq!(hosts(&[url]).await, ["pooler.example"; 2]);
        let direct = ("WAGGLE_DATABASE__LISTEN_URL", "postgres://direct.example/waggle");
        assert_eq!(hosts(&[url, direct]).await, ["pooler.example", "direct.example"]);
    }
}
