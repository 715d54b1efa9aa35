//! The URL of a database.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::Url;

/// The port of PostgreSQL.
const DEFAULT_PORT: u16 = 5432;

/// What a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DatabaseUrl {
    Postgres(PostgresUrl),
    Sqlite(PathBuf),
}

/// A database of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostgresUrl {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) tls: TlsMode,
}

/// What the URL says of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// Verified, but for servers in `allowNetworks`, which are connected to without.
    Unspecified,
    /// Verified everywhere.
    Verified,
    /// None, which only servers in `allowNetworks` allow.
    Disabled,
}

const EXPECTED: &str = "must be a URL such as postgres://user@host/database or sqlite:/directory/file.db";

impl DatabaseUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Says what is wrong, to be continued from the name of the member. The message has no part of the URL.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.starts_with('/') {
            return Self::sqlite(text);
        }
        let url = Url::parse(text).map_err(|_| EXPECTED)?;
        if url.password().is_some() {
            return Err("must not have a password: it belongs into `secrets`");
        }
        if url.fragment().is_some() {
            return Err(EXPECTED);
        }
        match url.scheme() {
            "postgres" | "postgresql" => PostgresUrl::new(&url).map(Self::Postgres),
            "sqlite" | "file" => {
                if !url.username().is_empty()
                    || url.has_host() && url.host_str() != Some("")
                    || url.query().is_some()
                {
                    return Err("must be a path of this machine, without options");
                }
                Self::sqlite(&decode(url.path())?)
            }
            _ => Err(EXPECTED),
        }
    }

    fn sqlite(path: &str) -> Result<Self, &'static str> {
        if !path.starts_with('/') || path.contains('\0') {
            return Err("must be an absolute path");
        }
        Ok(Self::Sqlite(PathBuf::from(path)))
    }
}

impl PostgresUrl {
    fn new(url: &Url) -> Result<Self, &'static str> {
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or("must name a host: sockets are not allowed")?;
        if host.contains([',', '/', '%']) {
            return Err("must name one host, and no socket");
        }
        let mut tls = TlsMode::Unspecified;
        for (name, value) in url.query_pairs() {
            tls = match (&*name, &*value) {
                ("sslmode", "disable") => TlsMode::Disabled,
                ("sslmode", "require" | "verify-ca" | "verify-full") => TlsMode::Verified,
                ("sslmode", _) => return Err("must have a `sslmode` of `verify-full` or `disable`, or none"),
                _ => return Err("must have no parameter other than `sslmode`"),
            };
        }
        let user = decode(url.username())?;
        let database = decode(url.path().trim_start_matches('/'))?;
        if user.is_empty() || database.is_empty() {
            return Err("must name a user and a database");
        }
        if user.contains('\0') || database.contains('\0') {
            return Err(EXPECTED);
        }
        Ok(Self { host: host.to_owned(), port: url.port().unwrap_or(DEFAULT_PORT), user, database, tls })
    }
}

fn decode(text: &str) -> Result<String, &'static str> {
    Ok(percent_decode_str(text).decode_utf8().map_err(|_| EXPECTED)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_one_host_or_a_path() {
        let postgres = |host: &str, port, user: &str, database: &str, tls| {
            let (host, user, database) = (host.into(), user.into(), database.into());
            Ok(DatabaseUrl::Postgres(PostgresUrl { host, port, user, database, tls }))
        };
        let sqlite = |path: &str| Ok(DatabaseUrl::Sqlite(PathBuf::from(path)));
        let options = Err("must have no parameter other than `sslmode`");
        let cases = [
            ("postgres://u@db/x", postgres("db", 5432, "u", "x", TlsMode::Unspecified)),
            ("postgresql://u%40@db:6000/x%20y", postgres("db", 6000, "u@", "x y", TlsMode::Unspecified)),
            (
                "postgres://u@[::1]/x?sslmode=verify-full",
                postgres("[::1]", 5432, "u", "x", TlsMode::Verified),
            ),
            ("postgres://u@db/x?sslmode=require", postgres("db", 5432, "u", "x", TlsMode::Verified)),
            ("postgres://u@db/x?sslmode=disable", postgres("db", 5432, "u", "x", TlsMode::Disabled)),
            (
                "postgres://u@db/x?sslmode=prefer",
                Err("must have a `sslmode` of `verify-full` or `disable`, or none"),
            ),
            ("postgres://u:p@db/x", Err("must not have a password: it belongs into `secrets`")),
            ("postgres://u@db/x?password=p", options.clone()),
            ("postgres://u@db/x?host=/var/run", options.clone()),
            ("postgres://u@db/x?hostaddr=127.0.0.1", options.clone()),
            ("postgres://u@db/x?sslcert=/etc/passwd", options.clone()),
            ("postgres://u@db/x?sslkey=/etc/passwd", options.clone()),
            ("postgres://u@db/x?sslrootcert=/etc/passwd", options.clone()),
            ("postgres://u@db/x?passfile=/etc/passwd", options.clone()),
            ("postgres://u@db/x?service=x", options.clone()),
            ("postgres://u@db/x?options=-c%20role%3Dx", options),
            ("postgres:///x", Err("must name a host: sockets are not allowed")),
            ("postgres:x", Err("must name a host: sockets are not allowed")),
            ("postgres://u@%2Fvar%2Frun/x", Err("must name one host, and no socket")),
            ("postgres://u@a,b/x", Err("must name one host, and no socket")),
            ("postgres://u@db", Err("must name a user and a database")),
            ("postgres://db/x", Err("must name a user and a database")),
            ("postgres://u@db/x#y", Err(EXPECTED)),
            ("mysql://u@db/x", Err(EXPECTED)),
            ("host=db user=u", Err(EXPECTED)),
            ("sqlite:/a/b.db", sqlite("/a/b.db")),
            ("sqlite:///a/b%20c.db", sqlite("/a/b c.db")),
            ("file:///a/b.db", sqlite("/a/b.db")),
            ("/a/b.db", sqlite("/a/b.db")),
            ("sqlite:b.db", Err("must be an absolute path")),
            ("sqlite://a/b.db", Err("must be a path of this machine, without options")),
            ("sqlite:/a/b.db?mode=rwc", Err("must be a path of this machine, without options")),
            ("sqlite:/a%00b", Err("must be an absolute path")),
        ];
        for (text, expected) in cases {
            assert_eq!(DatabaseUrl::parse(text), expected, "{text}");
        }
    }
}
