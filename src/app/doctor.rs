//! `waggle doctor`: checks everything that a gateway with these settings depends on. Changes nothing.

mod files;

use std::fs;
use std::path::Path;

use embedded_postgres::{Embedded, EmbeddedError};
use time::OffsetDateTime;
use x509_parser::pem::Pem;

use super::AppError;
use super::check::{UsedAddress, check};
use super::diagnosis::Diagnosis;
use super::embedded::existing_database;
use super::probe::{get, get_up_to, readiness};
use crate::config::Settings;
use crate::model::system::System;
use crate::store::Store;
use crate::store::diagnosis::DatabaseFacts;

/// The setting of the address that a gateway is recognized by.
const MAIN: &str = "server.listen";
/// The oldest supported version of PostgreSQL.
const OLDEST_POSTGRES: i32 = 140_000;
/// The tolerated difference between the clocks, in seconds.
const MAX_SKEW: f64 = 1.0;
/// The age in seconds from which an open transaction delays vacuum noticeably.
const LONG_TRANSACTION: f64 = 300.0;
/// The age in milliseconds from which a notification is slow.
const SLOW_NOTIFICATION: u128 = 100;
/// The days before its expiry at which a certificate is reported.
const EXPIRES_SOON: i64 = 21;
/// The seconds since the change feed was last proven current from which it is not.
const MAX_LAG: f64 = 1.0;
/// Bytes of the answer of a gateway to `/metrics`: more than it has.
const MAX_METRICS: usize = 8 << 20;
/// The share of the server's connections in use from which replicas may fail to connect, in percent.
const MAX_CONNECTIONS: i32 = 80;

/// When the checks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosedAt {
    /// At any time: a gateway with these settings may be running.
    AnyTime,
    /// Before a start, which needs the addresses to listen on for itself.
    Start,
}

/// Checks files, ports, the database, certificates, issuers and the gateway that may be running.
pub async fn diagnose(settings: &Settings, at: DiagnosedAt) -> Diagnosis {
    let mut found = Diagnosis::default();
    let checked = check(settings).await;
    let problems = checked.fatal();
    if problems.is_empty() {
        found.ok("settings", "valid, with the files and directories that they name");
    }
    for problem in problems {
        found.fail("settings", problem, "correct the setting; waggle config reference documents it");
    }
    let running = check_gateway(&mut found, settings, &checked.in_use).await;
    check_addresses(&mut found, &checked.in_use, at);
    files::check(&mut found, settings, &checked.files);
    check_certificate(&mut found, settings);
    if settings.database.url.is_none() && running {
        check_embedded(&mut found, &settings.embedded.data_dir);
    } else {
        check_database(&mut found, settings, running).await;
    }
    check_public_url(&mut found, settings, running).await;
    check_issuers(&mut found, settings).await;
    found
}

/// Whether a gateway runs at the address of the settings, and is ready.
async fn check_gateway(found: &mut Diagnosis, settings: &Settings, in_use: &[UsedAddress]) -> bool {
    let listen = settings.server.listen;
    let Some(used) = in_use.iter().find(|used| used.setting == MAIN) else {
        found.ok("gateway", format!("not running; {listen} is free"));
        return false;
    };
    if !used.by_gateway {
        let message = format!("{listen} is in use by another program");
        found.fail("gateway", message, "stop that program or change server.listen");
        return false;
    }
    let url = format!("{}/readyz", settings.server.local_url(listen));
    match readiness(&url).await {
        Ok((status, reasons)) => {
            const REASONS: &str = "docs/troubleshooting.md says what each reason means";
            match (status, reasons.is_empty()) {
                (200, true) => found.ok("gateway", format!("ready at {listen}")),
                (200, false) => {
                    found.warn("gateway", format!("ready at {listen}, degraded: {reasons}"), REASONS);
                }
                (_, true) => {
                    let message = format!("{listen} answered {status} to /readyz");
                    found.fail("gateway", message, "read the log of the gateway");
                }
                (_, false) => found.fail("gateway", format!("not ready at {listen}: {reasons}"), REASONS),
            }
            if status == 200 {
                check_feed(found, settings).await;
            }
        }
        Err(error) => {
            found.fail(
                "gateway",
                format!("{listen} does not answer /readyz: {error}"),
                "read the log of the gateway",
            );
        }
    }
    true
}

/// Whether a gateway can listen on the addresses that are in use: beside a running gateway on those that it listens on, at a
/// start on none. What else listens on `server.listen` is reported as the state of the gateway.
fn check_addresses(found: &mut Diagnosis, in_use: &[UsedAddress], at: DiagnosedAt) {
    let runs = in_use.iter().any(|used| used.setting == MAIN && used.by_gateway);
    for UsedAddress { setting, address, by_gateway } in in_use {
        let by = match (*by_gateway, at) {
            (true, DiagnosedAt::AnyTime) if runs => continue,
            (false, _) if *setting == MAIN => continue,
            (true, _) => "a running gateway",
            (false, _) => "another program",
        };
        let remedy = "stop what listens there, or change the setting";
        found.fail(setting, format!("{address} is in use by {by}"), remedy);
    }
}

/// Whether the running gateway knows that it is current, by its metrics, where they are served to this machine.
async fn check_feed(found: &mut Diagnosis, settings: &Settings) {
    let listen = settings.admin.listen.unwrap_or(settings.server.listen);
    let url = format!("{}/metrics", settings.server.local_url(listen));
    let Ok((200, metrics)) = get_up_to(MAX_METRICS, &url, true).await else { return };
    let metrics = String::from_utf8_lossy(&metrics);
    let mut lag = metrics.lines().filter_map(|line| line.strip_prefix("waggle_feed_unproven_seconds "));
    let Some(lag) = lag.next().and_then(|seconds| seconds.trim().parse::<f64>().ok()) else { return };
    let message = if lag.is_finite() {
        format!("proven current {lag:.1} s ago")
    } else {
        "not proven current since the start".to_owned()
    };
    let remedy = "each answer waits for a sweep of the database; its log says why LISTEN or sweeps fail";
    found.judge("change feed", lag > MAX_LAG, message, remedy);
}

fn check_certificate(found: &mut Diagnosis, settings: &Settings) {
    let Some(file) = &settings.server.tls_certificate else { return };
    let Some(end) = fs::read(file).ok().and_then(|pem| expiry(&pem)) else { return };
    let days = (end - OffsetDateTime::now_utc()).whole_days();
    let message = format!("{} expires in {days} days", file.display());
    let remedy = "replace the file; it is reloaded";
    if days < 0 {
        found.fail("server.tls_certificate", format!("{} has expired", file.display()), remedy);
    } else {
        found.judge("server.tls_certificate", days < EXPIRES_SOON, message, remedy);
    }
}

/// When the first certificate of a file expires.
fn expiry(pem: &[u8]) -> Option<OffsetDateTime> {
    let first = Pem::iter_from_buffer(pem).next()?.ok()?;
    Some(first.parse_x509().ok()?.validity().not_after.to_datetime())
}

/// The embedded database beside a running gateway, which has locked it.
fn check_embedded(found: &mut Diagnosis, data_dir: &Path) {
    const OTHER: &str =
        "the running gateway has another database, or is creating it: use its settings, in its directory";
    match Embedded::exists(data_dir) {
        Ok(true) => found.ok("database", "embedded, in use by the running gateway, which reports its state"),
        Ok(false) => {
            let none = AppError::NoDatabase(data_dir.display().to_string());
            found.warn("database", none.to_string(), OTHER);
        }
        Err(error) => found.fail("database", error.to_string(), "see docs/troubleshooting.md"),
    }
}

async fn check_database(found: &mut Diagnosis, settings: &Settings, running: bool) {
    let (options, embedded) = match existing_database(settings).await {
        Ok(database) => database,
        Err(error @ AppError::NoDatabase(_)) => {
            let remedy = "waggle serve creates an embedded database; else set DATABASE_URL";
            return found.warn("database", error.to_string(), remedy);
        }
        Err(error @ AppError::Embedded(EmbeddedError::InUse { .. })) => {
            return found.warn("database", error.to_string(), "stop that gateway to check its database");
        }
        Err(error) => return found.fail("database", error.to_string(), "see docs/troubleshooting.md"),
    };
    let store = Store::new(options);
    match store.facts().await {
        Ok(facts) => check_facts(found, &facts, running),
        Err(error) => {
            let message = format!("{}: {error}", store.location());
            found.fail("database", message, "see docs/troubleshooting.md");
        }
    }
    if found.is_healthy() {
        check_schema(found, &store, running).await;
        check_notifications(found, &store).await;
    }
    store.close().await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
}

fn check_facts(found: &mut Diagnosis, facts: &DatabaseFacts, running: bool) {
    let DatabaseFacts { version, role, encoding, max_connections, connections, .. } = facts;
    if facts.version_number < OLDEST_POSTGRES {
        found.fail("database", format!("PostgreSQL {version}"), "use PostgreSQL 14 or newer");
    } else if encoding != "UTF8" {
        found.fail(
            "database",
            format!("the encoding is {encoding}"),
            "create the database with encoding UTF8",
        );
    } else if facts.is_standby {
        found.fail("database", "the server is a standby, which refuses writes", "connect to the primary");
    } else if facts.is_read_only {
        found.fail(
            "database",
            format!("default_transaction_read_only is on for {role}, so that writes fail"),
            "unset it where it is set: for the role, the database or the server",
        );
    } else {
        found.ok("database", format!("PostgreSQL {version}, encoding {encoding}"));
    }
    let superuser = if facts.is_superuser { "a superuser" } else { "not a superuser" };
    let remedy = "use a role with rights on its own database only";
    found.judge("database role", facts.is_superuser, format!("{role}, {superuser}"), remedy);
    let skew = (OffsetDateTime::now_utc() - facts.now).as_seconds_f64();
    let remedy = "synchronize the clocks: expiries are compared with the gateway's";
    found.judge("database clock", skew.abs() > MAX_SKEW, format!("{skew:+.3} s from this machine's"), remedy);
    // That each is ready is checked with the settings of each.
    let replicas = facts.replicas;
    let message = format!("{replicas} listening for changes");
    let remedy = "the running gateway uses another database, or its log says why it does not listen";
    found.judge("database replicas", running && replicas == 0, message, remedy);
    let many = connections.saturating_mul(100) > max_connections.saturating_mul(MAX_CONNECTIONS);
    let message = format!("{connections} of {max_connections} in use");
    found.judge(
        "database connections",
        many,
        message,
        "raise max_connections or lower database.max_connections",
    );
    let age = facts.oldest_transaction;
    let remedy = "end it: rows that it may read are not removed; see pg_stat_activity";
    found.judge(
        "database transactions",
        age > LONG_TRANSACTION,
        format!("the oldest is {age:.0} s old"),
        remedy,
    );
}

async fn check_schema(found: &mut Diagnosis, store: &Store, running: bool) {
    match store.schema().await {
        Ok(status) if running && status.applied.is_none() => {
            let message =
                "the database has no tables, though a gateway runs: it was emptied, or is being restored";
            let remedy =
                "let the restore end, or begin it (docs/backup.md); tables made now would make it fail";
            found.fail("database schema", message, remedy);
        }
        Ok(status) if status.is_newer() => {
            let message = "a newer version has migrated the database";
            found.warn("database schema", message, "upgrade this binary, unless it is being replaced");
        }
        Ok(status) if status.missing.is_empty() => found.ok("database schema", "current"),
        Ok(status) => {
            let message = format!("{} migrations are missing", status.missing.len());
            found.warn("database schema", message, "waggle migrate applies them, and so does waggle serve");
        }
        Err(error) => found.fail("database schema", error.to_string(), "check the rights of the role"),
    }
}

async fn check_notifications(found: &mut Diagnosis, store: &Store) {
    let mut random = [0; 8];
    if System::real().random.fill(&mut random).is_err() {
        return;
    }
    let channel = format!("waggle_doctor_{:016x}", u64::from_le_bytes(random));
    match store.notification_round_trip(&channel).await {
        Ok(time) => {
            let message = format!("LISTEN receives a NOTIFY after {:.1} ms", time.as_secs_f64() * 1_000.0);
            let slow = time.as_millis() > SLOW_NOTIFICATION;
            found.judge("database notifications", slow, message, "changes reach other replicas late");
        }
        Err(error) => {
            let message = format!("LISTEN does not receive a NOTIFY: {error}");
            let remedy =
                "set database.listen_url to the server itself: poolers in transaction mode lose LISTEN";
            found.fail("database notifications", message, remedy);
        }
    }
}

async fn check_public_url(found: &mut Diagnosis, settings: &Settings, running: bool) {
    let url = &settings.server.public_url;
    let host = url::Url::parse(url.as_str()).ok().and_then(|url| url.host().map(|host| host.to_owned()));
    let refused = settings
        .server
        .allowed_hosts
        .as_ref()
        .zip(host)
        .is_some_and(|(allowed, host)| !allowed.contains(&host));
    if refused {
        let message = format!("server.allowed_hosts does not have the host of {url}");
        return found.fail("server.public_url", message, "add it: browsers would be refused");
    }
    if !running {
        return found.ok("server.public_url", format!("{url}, not requested while no gateway is running"));
    }
    match get(&format!("{url}/healthz"), false).await {
        Ok((200, _)) => found.ok("server.public_url", format!("{url} answers")),
        Ok((status, _)) => found.warn(
            "server.public_url",
            format!("{url}/healthz answered {status}"),
            "check the proxy in between",
        ),
        Err(error) => found.warn(
            "server.public_url",
            format!("{url}: {error}"),
            "check DNS, the proxy and the certificate",
        ),
    }
}

async fn check_issuers(found: &mut Diagnosis, settings: &Settings) {
    for issuer in &settings.tokens.issuers {
        let discovery =
            format!("{}/.well-known/openid-configuration", issuer.issuer.as_str().trim_end_matches('/'));
        let url = issuer.jwks_url.as_ref().map_or(discovery, ToString::to_string);
        match get(&url, false).await {
            Ok((200, _)) => found.ok("tokens.issuers", format!("{url} answers")),
            Ok((status, _)) => found.warn(
                "tokens.issuers",
                format!("{url} answered {status}"),
                "its access tokens cannot be verified",
            ),
            Err(error) => found.warn(
                "tokens.issuers",
                format!("{url}: {error}"),
                "its access tokens cannot be verified",
            ),
        }
    }
}
