//! `[database]`: the PostgreSQL that holds everything.

use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::{
    number::{Count, Time},
    reader::Reader,
    text::Secret,
};

/// The PostgreSQL that holds everything, and how long it may keep us waiting.
#[derive(Clone, Debug)]
pub struct Database {
    /// Where it is; `None`: the gateway runs its own.
    pub url: Option<SecretString>,
    /// Where to listen for notifications, past a pooler that breaks them; set whenever `url` is.
    pub listen_url: Option<SecretString>,
    /// As whom tables are made and old partitions dropped; `None`: as in `url`.
    pub owner_url: Option<SecretString>,
    /// The most connections that are open at once.
    pub max_connections: u32,
    /// How long opening a connection may take.
    pub connect: Duration,
    /// How long a request may wait for a free connection.
    pub acquire: Duration,
    /// How long one statement may run.
    pub statement: Duration,
    /// How long one statement may wait for a lock.
    pub lock: Duration,
    /// How often the listening connection is proven alive.
    pub probe: Duration,
    /// How often changes are looked for that no notification told of.
    pub sweep: Duration,
}

impl Database {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let second = Duration::from_secs;
        let url = reader.optional("database.url", &Secret(postgres_url), None);
        let listen_url = reader.optional("database.listen_url", &Secret(postgres_url), url.clone());
        Self {
            url,
            listen_url,
            owner_url: reader.optional("database.owner_url", &Secret(postgres_url), None),
            max_connections: reader.value("database.max_connections", &Count(4..=1000), 16),
            connect: reader.value("database.connect_seconds", &Time::seconds(1..=300), second(5)),
            acquire: reader.value("database.acquire_seconds", &Time::seconds(1..=300), second(5)),
            statement: reader.value("database.statement_seconds", &Time::seconds(1..=3600), second(30)),
            lock: reader.value("database.lock_seconds", &Time::seconds(1..=3600), second(5)),
            probe: reader.value(
                "database.probe_ms",
                &Time::milliseconds(50..=10_000),
                Duration::from_millis(250),
            ),
            sweep: reader.value(
                "database.sweep_ms",
                &Time::milliseconds(100..=60_000),
                Duration::from_millis(500),
            ),
        }
    }
}

fn postgres_url(text: &str) -> Result<SecretString, String> {
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err("does not begin with postgres:// or postgresql://".to_owned());
    }
    // The parser's errors are fixed texts: none repeats the URL.
    let url = Url::parse(text).map_err(|error| {
        format!("is not a URL ({error}); in a password, characters such as / # ? @ : are percent-encoded")
    })?;
    let socket = url.query_pairs().any(|(name, _)| name == "host");
    if url.host_str().is_none_or(str::is_empty) && !socket {
        return Err("names no host: postgres://user:password@host:5432/database".to_owned());
    }
    Ok(text.to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_postgresql_knows_are_taken() {
        let urls = [
            "postgres://waggle@127.0.0.1/waggle",
            "postgresql://me:s%2Fcret@db.example.com:6432/waggle?sslmode=verify-full",
            "postgres:///waggle?host=/var/run/postgresql",
            "postgres://me:pw@[::1]/waggle",
        ];
        assert!(urls.iter().all(|url| postgres_url(url).is_ok()));
    }

    #[test]
    fn a_wrong_url_is_told_without_being_repeated() {
        let refused = [
            "mysql://me:hunter2@host/db",
            "hunter2",
            "postgres://me:hunter2#x@host/db",
            "postgres://me:hunter2@host:port/db",
            "postgres:///db?password=hunter2",
        ]
        .map(|url| postgres_url(url).unwrap_err());
        let encoded = "in a password, characters such as / # ? @ : are percent-encoded";
        let port = format!("is not a URL (invalid port number); {encoded}");
        let expected = [
            "does not begin with postgres:// or postgresql://",
            "does not begin with postgres:// or postgresql://",
            &port,
            &port,
            "names no host: postgres://user:password@host:5432/database",
        ];
        assert_eq!(refused, expected);
    }
}
