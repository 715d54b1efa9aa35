//! Rows of databases: PostgreSQL, or a SQLite file.
//!
//! A location names a statement of the connection, or is one if the connection allows it. It runs as a sub-query that
//! cannot write, and its parameters are bound, never part of its text.

mod database_url;
mod metered;
mod postgres;
mod rows;
mod session;
mod sqlite;
mod statement;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::database_url::{DatabaseUrl, PostgresUrl};
use self::postgres::{Postgres, is_denied};
use self::session::Server;
use self::sqlite::Sqlite;
use self::statement::{SqlDialect, Statement};
use crate::egress::Egress;
use crate::error::{FetchError, SettingsError};
use crate::kind::SourceContext;
use crate::location::{Format, Location};
use crate::paths;
use crate::settings::{networks, read_secrets, read_settings};
use crate::source::{Bounds, ChangeHint, Fetched, Source, Tree, Validator};

/// The maximum length of the name of a channel of PostgreSQL, which would truncate it.
const MAX_CHANNEL_BYTES: usize = 63;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Settings {
    url: String,
    #[serde(default)]
    statements: BTreeMap<String, String>,
    #[serde(default)]
    allow_statements: bool,
    notify_channel: Option<String>,
    #[serde(default, deserialize_with = "networks")]
    allow_networks: Vec<IpNet>,
    ca: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secrets {
    password: Option<String>,
}

/// A connection to a database.
pub(crate) struct Sql {
    database: Database,
    dialect: SqlDialect,
    statements: BTreeMap<String, Statement>,
    allow_statements: bool,
}

enum Database {
    Postgres(Postgres),
    Sqlite(Sqlite),
}

impl fmt::Debug for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sql").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl Sql {
    /// Builds the source of settings.
    pub(crate) fn new(
        settings: &Value,
        secrets: &Map<String, Value>,
        context: &Arc<SourceContext>,
    ) -> Result<Self, SettingsError> {
        let settings: Settings = read_settings(settings)?;
        let secrets: Secrets = read_secrets(secrets, "an object with `password`, a text")?;
        let url = DatabaseUrl::parse(&settings.url)
            .map_err(|problem| SettingsError::new("settings.url", problem))?;
        let dialect = match url {
            DatabaseUrl::Postgres(_) => SqlDialect::Postgres,
            DatabaseUrl::Sqlite(_) => SqlDialect::Sqlite,
        };
        let mut statements = BTreeMap::new();
        for (name, text) in &settings.statements {
            // The operator's own statements may use all functions.
            let statement = Statement::parse(text, dialect, |_| false)
                .map_err(|problem| SettingsError::new(format!("settings.statements.{name}"), problem))?;
            statements.insert(name.clone(), statement);
        }
        let allow_statements = settings.allow_statements;
        let database = match url {
            DatabaseUrl::Postgres(url) => {
                Database::Postgres(postgres(settings, url, secrets.password, context)?)
            }
            DatabaseUrl::Sqlite(path) => {
                refuse("settings.notifyChannel", settings.notify_channel.is_some())?;
                refuse("settings.allowNetworks", !settings.allow_networks.is_empty())?;
                refuse("settings.ca", settings.ca.is_some())?;
                refuse("secrets.password", secrets.password.is_some())?;
                if !paths::is_below_root(&path, context) {
                    let problem = "must be a file below one of `sources.file_roots`";
                    return Err(SettingsError::new("settings.url", problem));
                }
                Database::Sqlite(Sqlite::new(path, Arc::clone(context)))
            }
        };
        Ok(Self { database, dialect, statements, allow_statements })
    }

    /// The statement of a location, and what it is run with.
    fn find<'a>(&self, location: &'a Location) -> Result<Found<'_, 'a>, FetchError> {
        let Location::Statement { statement, parameters, format } = location else {
            return Err(FetchError::NotAllowed);
        };
        let statement = match statement.strip_prefix('@') {
            Some(name) => Parsed::Named(self.statements.get(name).ok_or(FetchError::NotFound)?),
            None if self.allow_statements => {
                let parsed = Statement::parse(statement, self.dialect, is_denied);
                Parsed::Free(parsed.map_err(|_| FetchError::NotAllowed)?)
            }
            None => return Err(FetchError::NotAllowed),
        };
        Ok(Found { statement, parameters, format: *format })
    }
}

struct Found<'s, 'a> {
    statement: Parsed<'s>,
    parameters: &'a BTreeMap<String, String>,
    format: Format,
}

enum Parsed<'s> {
    Named(&'s Statement),
    Free(Statement),
}

impl Parsed<'_> {
    fn get(&self) -> &Statement {
        match self {
            Self::Named(statement) => statement,
            Self::Free(statement) => statement,
        }
    }
}

fn refuse(member: &str, is_given: bool) -> Result<(), SettingsError> {
    if is_given { Err(SettingsError::new(member, "is not for SQLite")) } else { Ok(()) }
}

fn postgres(
    settings: Settings,
    url: PostgresUrl,
    password: Option<String>,
    context: &Arc<SourceContext>,
) -> Result<Postgres, SettingsError> {
    if let Some(channel) = &settings.notify_channel
        && (channel.is_empty() || channel.len() > MAX_CHANNEL_BYTES || channel.contains('\0'))
    {
        let problem = format!("must have 1 to {MAX_CHANNEL_BYTES} bytes and no NUL");
        return Err(SettingsError::new("settings.notifyChannel", problem));
    }
    let tls = Arc::new(crate::tls::configure(settings.ca.as_deref())?);
    let egress = Egress::new(settings.allow_networks, Arc::clone(&context.resolver));
    let server = Server { url, password, egress, tls, context: Arc::clone(context) };
    Ok(Postgres::new(server, settings.notify_channel))
}

impl Source for Sql {
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        _known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(async move {
            let found = self.find(location)?;
            let statement = found.statement.get();
            let content = match &self.database {
                Database::Postgres(of) => of.fetch(statement, found.parameters, found.format, bounds).await?,
                Database::Sqlite(of) => of.fetch(statement, found.parameters, found.format, bounds).await?,
            };
            Ok(Fetched::Contents { contents: vec![content], validator: None })
        })
    }

    fn watch(&self, _tree: &Tree) -> Option<BoxStream<'static, ChangeHint>> {
        match &self.database {
            Database::Postgres(of) => of.watch(),
            Database::Sqlite(_) => None,
        }
    }

    fn check<'a>(&'a self, location: &'a Location) -> BoxFuture<'a, Result<(), FetchError>> {
        Box::pin(async move {
            let found = self.find(location)?;
            match &self.database {
                Database::Postgres(of) => of.check(found.statement.get(), found.format).await,
                Database::Sqlite(of) => of.check(found.statement.get(), found.format).await,
            }
        })
    }
}

#[cfg(test)]
mod tests;
