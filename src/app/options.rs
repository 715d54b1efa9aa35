//! Derives the options of each part of the gateway from the settings.

use std::sync::Arc;
use std::time::Duration;

use content_source::{SourceContext, SystemResolver};

use crate::admin::definition::ContentLimits;
use crate::cache::{LoadOptions, QueueOptions};
use crate::catalog::render::RendererLimits;
use crate::catalog::{CatalogLimits, SearchLimits};
use crate::config::Settings;
use crate::feed::FeedOptions;
use crate::identity::IdentityLimits;
use crate::mcp::endpoint::EndpointOptions;
use crate::mcp::request::RequestCosts;
use crate::model::limits::Rate;
use crate::quota::limits::{BodyMemoryOptions, BodyPace, LimitOptions};
use crate::quota::usage::UsageOptions;
use crate::sessions::SessionLimits;
use crate::sources::FetchOptions;
use crate::store::DatabaseLocation;

pub(super) fn feed_options(settings: &Settings) -> FeedOptions {
    FeedOptions {
        probe: settings.database.probe,
        sweep: settings.database.sweep,
        notify: settings.changes.notify,
        timeout: settings.database.acquire.min(Duration::from_secs(2)),
        stale: settings.access.stale,
        traces: settings.otel.is_some(),
    }
}

/// Loads use at most three quarters of the connection pool. Each is one statement, so their connections are never idle; the
/// others are left to writes and the administration API.
fn most_of_pool(settings: &Settings) -> usize {
    let connections = settings.database.max_connections;
    (connections - connections.div_ceil(4)).max(1) as usize
}

/// Writes use at most half of the connection pool.
fn half_of_pool(settings: &Settings) -> usize {
    (settings.database.max_connections / 2).max(1) as usize
}

pub(super) fn load_options(settings: &Settings) -> LoadOptions {
    LoadOptions {
        concurrent: most_of_pool(settings),
        deadline: settings.database.acquire,
        stale: settings.access.stale,
    }
}

/// A reader waits for a source for most of the deadline of its request, so that its answer says what failed.
pub(super) fn fetch_options(settings: &Settings) -> FetchOptions {
    FetchOptions {
        ttl: settings.sources.ttl,
        longest_wait: settings.server.request.mul_f32(0.9),
        bytes_per_second: settings.sources.bytes_per_second,
    }
}

pub(super) fn queue_options(settings: &Settings) -> QueueOptions {
    QueueOptions {
        concurrent: half_of_pool(settings),
        waiting_per_scope: settings.writes.queue_per_agent,
        wait: settings.writes.wait,
        deadline: settings.database.statement,
    }
}

pub(super) fn identity_limits(settings: &Settings) -> IdentityLimits {
    IdentityLimits {
        unknown_keys_per_second: settings.access.unknown_keys_per_second,
        agents_per_tenant: settings.limits.agents_per_tenant,
        retired_slugs_per_tenant: settings.limits.retired_slugs_per_tenant,
        active_keys: settings.limits.active_keys,
        key_rate: settings.limits.key,
    }
}

pub(super) fn session_limits(settings: &Settings) -> SessionLimits {
    SessionLimits {
        idle: settings.sessions.idle,
        subscriptions: settings.sessions.subscriptions,
        per_principal: settings.sessions.per_principal,
    }
}

/// The bounds of contents.
pub(super) fn content_limits(settings: &Settings) -> ContentLimits {
    ContentLimits { content_bytes: settings.limits.content_bytes, skill: skill_limits(settings) }
}

/// What one skill may have.
fn skill_limits(settings: &Settings) -> skill::Limits {
    skill::Limits { files: settings.limits.skill_files, bytes: settings.limits.skill_bytes }
}

pub(super) fn catalog_limits(settings: &Settings) -> CatalogLimits {
    CatalogLimits {
        resources_per_agent: settings.limits.resources_per_agent as usize,
        templates_per_agent: settings.limits.templates_per_agent as usize,
        prompts_per_agent: settings.limits.prompts_per_agent as usize,
        mounts_per_agent: settings.limits.mounts_per_agent as usize,
        mount_entries: settings.limits.mount_entries as usize,
        skill: skill_limits(settings),
        embedded_bytes: settings.limits.content_bytes,
        rendering: RendererLimits {
            at_once: settings.limits.concurrent_renders,
            waiting: settings.limits.waiting_renders,
            ..RendererLimits::default()
        },
        page_size: settings.mcp.page_size,
        watched_bytes: settings.sources.watched_bytes,
        search: SearchLimits {
            document_bytes: settings.search.document_bytes,
            concurrent_builds: settings.search.concurrent_builds,
            wait: settings.search.wait,
        },
    }
}

pub(super) fn endpoint_options(settings: &Settings) -> EndpointOptions {
    EndpointOptions {
        body_bytes: settings.limits.body_bytes,
        batch_answer_bytes: settings.limits.content_bytes,
        tool_result_bytes: settings.limits.tool_result_bytes,
        ttl: settings.mcp.ttl,
        // Each keep-alive comment of a stream also records a use of its session.
        keep_alive: settings.sessions.keep_alive.min(settings.sessions.idle / 4),
        streams_per_key: settings.limits.streams_per_key,
        streams: settings.limits.streams,
        uris_per_stream: settings.sessions.subscriptions,
        costs: RequestCosts::from(&settings.costs),
    }
}

pub(super) fn limit_options(settings: &Settings) -> LimitOptions {
    let limits = &settings.limits;
    let look_ups = (settings.access.unknown_keys_per_second / 4).max(1);
    LimitOptions {
        key: limits.key,
        agent: limits.agent,
        tenant: limits.tenant,
        address: limits.address,
        // No address may exhaust the look-ups that all addresses share.
        look_ups: Rate::new(look_ups, look_ups),
        concurrent_per_key: limits.concurrent_per_key,
        concurrent_per_agent: limits.concurrent_per_agent,
        penalty: limits.address_penalty,
        remembered: limits.remembered,
        uploads: BodyMemoryOptions {
            total: limits.upload_bytes as u64,
            per_tenant: limits.upload_bytes_per_tenant as u64,
            per_key: limits.upload_bytes_per_key as u64,
            pace: BodyPace {
                window: settings.server.body_window,
                bytes_per_second: settings.server.body_bytes_per_second,
            },
        },
    }
}

pub(super) fn usage_options(settings: &Settings) -> UsageOptions {
    let (usage, stale) = (&settings.usage, settings.access.stale);
    let strangers_percent = settings.limits.strangers_percent;
    let metered_tenants = settings.metrics.tenants;
    UsageOptions { settle: usage.settle, retain: usage.retain, stale, strangers_percent, metered_tenants }
}

/// What connections to content from outside may reach: neither the gateway's own files nor its database.
pub(super) fn source_context(settings: &Settings, database: &DatabaseLocation) -> SourceContext {
    let Settings { sources, embedded, .. } = settings;
    let tls = settings.server.tls();
    let keys = [
        sources.key_file.clone(),
        settings.admin.operator_keys_file.clone(),
        settings.audit.signing_key_file.clone(),
        tls.map(|files| files.key),
    ];
    let own = [embedded.data_dir.clone()];
    let DatabaseLocation { host, port, database } = database.clone();
    SourceContext {
        file_roots: sources.file_roots.clone(),
        denied_paths: own.into_iter().chain(keys.into_iter().flatten()).collect(),
        cache_dir: sources.cache_dir.clone().unwrap_or_else(|| embedded.data_dir.join("sources")),
        cache_bytes: sources.cache_bytes,
        own_database: Some((host, port, database)),
        resolver: Arc::new(SystemResolver::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::source_context;
    use crate::config::{self, Environment, Flags, Purpose};
    use crate::store::DatabaseLocation;

    #[test]
    fn connections_reach_neither_the_files_nor_the_database_of_the_gateway() {
        let variables = [
            ("WAGGLE_EMBEDDED__DATA_DIR", "/own/data"),
            ("WAGGLE_SOURCES__KEY_FILE", "/own/sources.key"),
            ("WAGGLE_ADMIN__OPERATOR_KEYS_FILE", "/own/operator.keys"),
            ("WAGGLE_AUDIT__SIGNING_KEY_FILE", "/own/audit.key"),
            ("WAGGLE_SERVER__TLS_CERTIFICATE", "/own/tls.pem"),
            ("WAGGLE_SERVER__TLS_KEY", "/own/tls.key"),
        ];
        let environment: Environment =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let loaded = config::load(&environment, &Flags::default(), Purpose::Assist).ok().unwrap();
        let own = ("db.example".to_owned(), 6_432, "waggle".to_owned());
        let location = DatabaseLocation { host: own.0.clone(), port: own.1, database: own.2.clone() };
        let context = source_context(&loaded.settings, &location);
        let denied = ["data", "sources.key", "operator.keys", "audit.key", "tls.key"];
        assert_eq!(context.denied_paths, denied.map(|name| PathBuf::from("/own").join(name)));
        assert_eq!(context.own_database, Some(own));
    }
}
