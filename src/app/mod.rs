//! The running gateway: builds its parts, connects them, and owns startup and shutdown.

mod audit;
mod background;
mod backup;
mod check;
mod client;
mod connection_keys;
mod credentials;
mod demo;
mod diagnosis;
mod directory;
mod doctor;
mod embedded;
mod error;
mod error_codes;
mod files;
mod memory;
mod options;
mod probe;
mod reload;
mod run;
mod schema;
mod service_manager;
mod services;
mod signals;
mod signing;
mod startup;
mod traces;
mod verify;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin, AuditReader, LimitBounds, ManifestLimits};
use crate::audit::RunningAudit;
use crate::catalog::mounts::MountScanner;
use crate::catalog::watch::Watcher;
use crate::config::Settings;
use crate::feed::Feed;
use crate::http::client_address::TrustedProxies;
use crate::http::credential::Authenticator;
use crate::http::cursor::CursorSeal;
use crate::http::operator_keys::OperatorKeys;
use crate::http::origin::OriginRules;
use crate::http::recorder::RequestRecorder;
use crate::http::request_id::RequestIds;
use crate::http::tenant_meter::TenantMeter;
use crate::mcp::endpoint::{Endpoint, Services};
use crate::model::feed::{ChangeFeed, Follower, Subscriptions};
use crate::model::sources::Sources;
use crate::quota::limits::Limits;
use crate::quota::usage::UsageBook;
use crate::server::gateway::{Gateway, GatewayOptions, SharedMetadata, SurfaceOptions, Surfaces};
use crate::server::listeners::Listeners;
use crate::server::metrics::{AnswerMeter, Metrics};
use crate::sources::{Connections, Leases};
use crate::store::{Store, StoreError, StoreOptions};

use background::Background;
use credentials::AcceptedCredentials;
use options::{content_limits, endpoint_options, feed_options, limit_options, usage_options};

pub use backup::{Backup, backup, restore};
pub use check::{Checked, UsedAddress, check};
pub(crate) use client::{client, root_cause};
pub use demo::Demo;
pub use diagnosis::{Diagnosis, Finding, Status};
pub use doctor::{DiagnosedAt, diagnose};
pub use embedded::database;
pub use error::AppError;
pub use error_codes::error_codes;
pub use files::FileProblem;
pub use reload::Reloader;
pub use run::run;
pub use schema::{migrate, schema_status};
pub use services::DatabaseServices;
pub use signing::audit_key;
pub use verify::{Verdict, verify_audit};

/// How long cleanup may take after the last request: writes of disconnected callers, open connections.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);

/// Checks the body of the administration call that creates a tenant, a connection (without secrets) or an agent: a `POST` to
/// this path.
///
/// # Errors
/// The first member that is wrong.
pub fn check_body(path: &str, body: Map<String, Value>) -> Result<(), String> {
    admin::check_body(path, body)
}

/// The OpenAPI document of the administration API, as JSON.
pub fn openapi() -> &'static str {
    admin::document()
}

/// A running gateway.
#[derive(Debug)]
pub struct Running {
    /// The address of the MCP endpoints.
    pub address: SocketAddr,
    /// The address of the administration API.
    pub admin_address: SocketAddr,
    /// Its services over the database.
    pub services: DatabaseServices,
    feed: Arc<Feed>,
    store: Store,
    audit: RunningAudit,
    credentials: AcceptedCredentials,
    listeners: Listeners,
    background: Background,
    grace: Duration,
}

/// Starts a gateway on a database; waits for the database while it is unreachable.
///
/// # Errors
/// If the database refuses or cannot be migrated, or an address is in use.
pub async fn start(
    settings: &Settings,
    database: StoreOptions,
    operators: OperatorKeys,
    sources: Sources,
) -> Result<Running, AppError> {
    let listeners = Listeners::open(settings, &sources).await?;
    build(settings, database, operators, sources, listeners).await
}

/// Builds the gateway that the listeners answer with.
async fn build(
    settings: &Settings,
    database: StoreOptions,
    operators: OperatorKeys,
    sources: Sources,
    listeners: Listeners,
) -> Result<Running, AppError> {
    let store = Store::new(database);
    let secret = startup::prepare(&store, &sources, &listeners.gateway).await?;
    connection_keys::create_own(settings, &store, &sources).await?;
    let seal = CursorSeal::new(&secret).ok_or(StoreError::Unreadable("cursor secret"))?;
    let feed =
        Arc::new(Feed::new(store.clone(), sources.clone(), listeners.instance, feed_options(settings)));
    let background = Background::default();
    let credentials = AcceptedCredentials::new(settings, operators, &background)?;
    let change_feed = Arc::clone(&feed) as Arc<dyn ChangeFeed>;
    let over_database =
        DatabaseServices::new(settings, (&store, &sources), &change_feed, Arc::clone(&credentials.tokens));
    over_database.connections.check_keys().await??;
    let follower: Weak<dyn Follower> =
        Arc::downgrade(&(Arc::clone(&over_database.catalog) as Arc<dyn Follower>));
    feed.start(follower, &background.tasks, &background.stop);
    over_database.start(&background, settings.cache.warm_agents).await;
    let subscriptions = Arc::clone(&feed) as Arc<dyn Subscriptions>;
    let leases = Arc::new(Leases::new(store.clone(), listeners.instance));
    let watcher = Watcher::new(Arc::clone(&over_database.catalog), subscriptions, Arc::clone(&leases));
    background.tasks.spawn(watcher.run(background.stop.clone()));
    let scanner = MountScanner::new(Arc::clone(&over_database.catalog), Arc::clone(&leases));
    background.tasks.spawn(scanner.run(background.stop.clone()));
    let stop = background.stop.clone();
    background.tasks.spawn({
        let leases = Arc::clone(&leases);
        async move { leases.run(stop).await }
    });
    let audit = audit::start(settings, &store, &secret, sources.clone())?;
    let ids = RequestIds::new(sources.random.as_ref())?;
    let limits = Arc::new(Limits::new(limit_options(settings)));
    let usage = Arc::new(UsageBook::new(store.clone(), sources.clone(), usage_options(settings)));
    background.tasks.spawn({
        let (usage, stop) = (Arc::clone(&usage), background.stop.clone());
        async move { usage.run_maintenance(stop).await }
    });
    let services = Services {
        identity: Arc::clone(&over_database.identity),
        catalog: Arc::clone(&over_database.catalog),
        sessions: Arc::clone(&over_database.sessions),
        feed: Arc::clone(&feed),
        budget: Arc::clone(&over_database.budget),
        recorder: Arc::new(RequestRecorder::new(
            Arc::clone(&audit.audit),
            usage,
            (settings.metrics.tenants > 0).then(|| TenantMeter::new(settings.metrics.tenants)),
        )),
        limits,
        tracer: traces::start(settings, &sources, &background)?,
    };
    let authenticator = Authenticator::new(
        Arc::clone(&services.identity),
        Arc::clone(&services.limits),
        credentials.operators.clone(),
    );
    let keys = (seal, authenticator);
    let endpoint = endpoint(settings, services.clone(), keys.clone(), listeners.stop.clone());
    // Streams do not wait for the token; a recheck makes them read it.
    background.tasks.spawn({
        let (feed, closing) = (Arc::clone(&feed), listeners.stop.clone());
        async move {
            closing.cancelled().await;
            feed.recheck_streams();
        }
    });
    let metrics = Metrics {
        services: services.clone(),
        store: store.clone(),
        connections: listeners.connections.clone(),
        leases: Arc::clone(&leases),
        operators: credentials.operators.clone(),
        token: settings.metrics.token.clone(),
        answers: AnswerMeter::default(),
        started: (sources.clock.now() - time::OffsetDateTime::UNIX_EPOCH).as_seconds_f64(),
    };
    let connections = Arc::clone(&over_database.connections);
    let administered = (services, connections);
    let gateway =
        gateway(settings, endpoint, administered, keys, (metrics, ids), Arc::clone(&credentials.metadata));
    listeners.gateway.fill(Arc::new(gateway));
    Ok(Running {
        address: listeners.address,
        admin_address: listeners.admin_address,
        services: over_database,
        feed,
        store,
        audit,
        credentials,
        listeners,
        background,
        grace: settings.server.shutdown,
    })
}

fn endpoint(
    settings: &Settings,
    services: Services,
    keys: (CursorSeal, Authenticator),
    closing: CancellationToken,
) -> Endpoint {
    Endpoint::new(services, keys, endpoint_options(settings), closing)
}

fn gateway(
    settings: &Settings,
    endpoint: Endpoint,
    (services, connections): (Services, Arc<Connections>),
    (seal, authenticator): (CursorSeal, Authenticator),
    (metrics, ids): (Metrics, RequestIds),
    metadata: SharedMetadata,
) -> Gateway {
    let Services { identity, catalog, recorder, .. } = services;
    let settable = LimitBounds {
        dearest: settings.costs.highest().1,
        key: settings.limits.key,
        agent: settings.limits.agent,
        tenant: settings.limits.tenant,
    };
    let admin = Admin {
        identity,
        catalog: Arc::clone(&catalog),
        connections,
        audit: AuditReader::new(Arc::clone(recorder.audit())),
        authenticator,
        usage: Arc::clone(recorder.usage()),
        settable,
        costs: settings.costs,
        seal,
        content_limits: content_limits(settings),
        manifests: ManifestLimits::new(settings.limits.manifest_bytes),
    };
    let hosts = settings.server.allowed_hosts.as_ref();
    let origins = OriginRules {
        hosts: hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect()),
        origins: settings.server.allowed_origins.clone(),
    };
    let surfaces = SurfaceOptions {
        origins,
        metadata,
        most_requests: settings.limits.concurrent_requests,
        most_refused_bodies: settings.limits.refused_bodies,
    };
    let surfaces = Surfaces::new(endpoint, admin::router(Arc::new(admin)), metrics, surfaces);
    let options = GatewayOptions {
        proxies: TrustedProxies::new(
            settings.server.trusted_proxies.clone(),
            settings.server.forwarded_header,
        ),
        deadline: settings.server.request,
        most_headers: settings.server.header_count,
        access_log: settings.log.access,
    };
    Gateway::new(surfaces, catalog, ids, options)
}

impl Running {
    /// Stops accepting, ends the streams, lets requests in flight finish within `server.shutdown_seconds`, then stops,
    /// whether or not the database answers.
    pub async fn stop(self) {
        let deadline = tokio::time::Instant::now() + self.grace + AFTER_REQUESTS;
        self.listeners.close().await;
        let leaving = async {
            self.feed.end_streams().await;
            self.services.drain().await;
            self.audit.stop().await;
            self.background.end().await;
            self.store.close().await;
        };
        if tokio::time::timeout_at(deadline, leaving).await.is_err() {
            self.background.stop.cancel();
            tracing::warn!("database unreachable at shutdown; last writes may be missing");
        }
    }
}
