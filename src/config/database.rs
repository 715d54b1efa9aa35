//! `[database]`: the PostgreSQL database, and how long it may take.

use secrecy::SecretString;
use url::Url;

use super::section::section;
use super::text::Secret;

section! {
    /// The PostgreSQL database, and how long it may take.
    #[derive(Clone, Debug)]
    pub struct Database["database"] {
        /// The PostgreSQL database; `DATABASE_URL` sets it too. Default: none, the gateway runs an embedded one.
        url: optional(SecretString, Secret(postgres_url), "postgres://waggle:password@127.0.0.1:5432/waggle"),
        /// The database to LISTEN on: the database itself, if url is a pooler in transaction mode. Default: url.
        listen_url: optional(
            SecretString,
            Secret(postgres_url),
            "postgres://waggle:password@127.0.0.1:5432/waggle"
        ) = url.clone(),
        /// The same database as the role that owns the tables, so that the role in url need not own anything. Default: url.
        owner_url: optional(SecretString, Secret(postgres_url), "postgres://owner:password@127.0.0.1:5432/waggle"),
        /// The size of one replica's connection pool.
        max_connections: count(u32, 4..=1000) = 16,
        /// The timeout for opening a connection.
        connect: seconds(1..=300) = 5,
        /// How long a request may wait for a free connection.
        acquire: seconds(1..=300) = 5,
        /// The timeout of one statement.
        statement: seconds(1..=3600) = 30,
        /// How long one statement may wait for a lock.
        lock: seconds(1..=3600) = 5,
        /// How often the LISTEN connection is probed.
        probe: milliseconds(50..=10_000) = 250,
        /// How often a sweep looks for changes whose notification was lost.
        sweep: milliseconds(100..=60_000) = 500,
    }
}

fn postgres_url(text: &str) -> Result<SecretString, String> {
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err("does not begin with postgres:// or postgresql://".to_owned());
    }
    // The parser's errors are constant: none repeats the URL.
    let url = Url::parse(text).map_err(|error| {
        format!("is not a URL ({error}); in a password, characters such as / # ? @ : are percent-encoded")
    })?;
    let socket = url.query_pairs().any(|(name, _)| name == "host");
    if url.host_str().is_none_or(str::is_empty) && !socket {
        return Err("has no host; expected postgres://user:password@host:5432/database".to_owned());
    }
    Ok(text.to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_forms_of_postgresql_are_accepted() {
        let urls = [
            "postgres://waggle@127.0.0.1/waggle",
            "postgresql://me:s%2Fcret@db.example.com:6432/waggle?sslmode=verify-full",
            "postgres:///waggle?host=/var/run/postgresql",
            "postgres://me:pw@[::1]/waggle",
        ];
        assert!(urls.iter().all(|url| postgres_url(url).is_ok()));
    }

    #[test]
    fn invalid_url_is_refused_without_repeating_it() {
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
            "has no host; expected postgres://user:password@host:5432/database",
        ];
        assert_eq!(refused, expected);
    }
}
