//! `[database]`: the PostgreSQL database, and how long it may take.

use std::net::IpAddr;

use secrecy::SecretString;
use url::Url;

use super::section::section;
use super::text::Secret;

const ENCODED: &str = "in a password, characters such as / # ? @ : are percent-encoded";
/// The values of `sslmode`.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
/// The parameters of a URL that take any value, besides `options[NAME]`. Some have several names.
const PARAMETERS: [&str; 13] = [
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// Parameters of other drivers that hosted databases put into the URLs that they print. The driver ignores them with a warning.
const IGNORED: [&str; 18] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "connection_limit",
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "pgbouncer",
    "pool_timeout",
    "schema",
    "sslnegotiation",
    "sslsni",
    "supa",
    "target_session_attrs",
    "tcp_user_timeout",
];

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
        /// How often the LISTEN connection is probed. Like sweeps, probes begin up to 64 ms later, when other tasks wake up too.
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
    let url = Url::parse(text).map_err(|error| format!("is not a URL ({error}); {ENCODED}"))?;
    let socket = url.query_pairs().any(|(name, _)| name == "host");
    for (name, value) in url.query_pairs() {
        check_parameter(&name, &value, url.query().is_some_and(|query| query.contains('@')))?;
    }
    if url.host_str().is_none_or(str::is_empty) && !socket {
        return Err("has no host; expected postgres://user:password@host:5432/database".to_owned());
    }
    Ok(text.to_owned().into())
}

/// Refuses what no driver knows, such as `sslmod=require`, which would be ignored with a warning, or what would be refused once
/// it connects. The name is not repeated if it may be the end of a password with a `?`.
fn check_parameter(name: &str, value: &str, may_be_password: bool) -> Result<(), String> {
    let (is_valid, expected) = match name {
        "sslmode" | "ssl-mode" => {
            (SSL_MODES.contains(&value.to_ascii_lowercase().as_str()), SSL_MODES.join(", "))
        }
        "port" => (value.parse::<u16>().is_ok(), "a number up to 65535".to_owned()),
        "hostaddr" => (value.parse::<IpAddr>().is_ok(), "an IP address".to_owned()),
        "statement-cache-capacity" => (value.parse::<usize>().is_ok(), "a number".to_owned()),
        _ if PARAMETERS.contains(&name) || IGNORED.contains(&name) => return Ok(()),
        _ if name.starts_with("options[") && name.ends_with(']') => return Ok(()),
        _ if may_be_password => return Err(format!("has an unknown parameter; {ENCODED}")),
        _ => {
            let known = PARAMETERS.join(", ");
            return Err(format!(
                "has the parameter {name}, which is unknown; known are sslmode, port, hostaddr, \
                 statement-cache-capacity, {known}"
            ));
        }
    };
    if is_valid { Ok(()) } else { Err(format!("has an invalid {name}; expected {expected}")) }
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
            "postgres://me@db/waggle?sslmode=Require&sslrootcert=ca.pem&options[statement_timeout]=5s&port=6432",
            "postgres://me@db.example.com/waggle?sslmode=require&channel_binding=require&connect_timeout=10",
            "postgres://me@db/waggle?pgbouncer=true&connection_limit=1&keepalives_idle=30",
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
            "postgres://me:1?hunter2@host/db",
            "postgres://me@host/db?sslmode=requir",
            "postgres://me@host/db?port=many",
        ]
        .map(|url| postgres_url(url).unwrap_err());
        let port = format!("is not a URL (invalid port number); {ENCODED}");
        let unknown = format!("has an unknown parameter; {ENCODED}");
        let expected = [
            "does not begin with postgres:// or postgresql://",
            "does not begin with postgres:// or postgresql://",
            &port,
            &port,
            "has no host; expected postgres://user:password@host:5432/database",
            &unknown,
            "has an invalid sslmode; expected disable, allow, prefer, require, verify-ca, verify-full",
            "has an invalid port; expected a number up to 65535",
        ];
        assert_eq!(refused, expected);
    }

    #[test]
    fn misspelt_parameter_is_refused_by_name() {
        let refused = postgres_url("postgres://me@host/db?sslmod=require").unwrap_err();
        assert!(
            refused.starts_with("has the parameter sslmod, which is unknown; known are sslmode, "),
            "{refused}"
        );
    }
}
