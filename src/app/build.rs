//! Builds a gateway: the services over its database, its background tasks, and the surfaces that the listeners answer with.

use std::sync::{Arc, Weak};

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::background::Background;
use super::credentials::AcceptedCredentials;
use super::options::{content_limits, endpoint_options, feed_options, limit_options, usage_options};
use super::{AppError, DatabaseServices, Running, audit, connection_keys, startup, traces};
use crate::admin::{self, Admin, AuditReader, LimitBounds, ManifestLimits};
use crate::audit::RunningAudit;
use crate::catalog::Catalog;
use crate::catalog::mounts::MountScanner;
use crate::catalog::watch::Watcher;
use crate::config::Settings;
use crate::feed::Feed;
use crate::http::client_address::TrustedProxies;
use crate::http::credential::Authenticator;
use crate::http::cursor::CursorSigner;
use crate::http::operator_keys::OperatorKeys;
use crate::http::origin::OriginRules;
use crate::http::query_limiter::QueryLimiter;
use crate::http::recorder::RequestRecorder;
use crate::http::request_id::RequestIds;
use crate::http::tenant_meter::TenantMeter;
use crate::mcp::endpoint::{Endpoint, Services};
use crate::model::feed::{Follower, Subscriptions};
use crate::model::system::System;
use crate::quota::limits::Limits;
use crate::quota::usage::UsageTracker;
use crate::server::gateway::{Gateway, GatewayOptions, SurfaceOptions, Surfaces};
use crate::server::listeners::Listeners;
use crate::server::metrics::{AnswerMeter, Metrics};
use crate::sources::Leases;
use crate::store::{Store, StoreError, StoreOptions};
use crate::telemetry::trace::Tracer;

/// Starts a gateway on a database; waits for the database while it is unreachable.
///
/// # Errors
/// If the database refuses or cannot be migrated, or an address is in use.
pub async fn start(
    settings: &Settings,
    database: StoreOptions,
    operators: OperatorKeys,
    system: System,
) -> Result<Running, AppError> {
    let listeners = Listeners::open(settings, &system).await?;
    build(settings, database, operators, system, listeners).await
}

/// Builds the gateway that the listeners answer with.
pub(super) async fn build(
    settings: &Settings,
    database: StoreOptions,
    operators: OperatorKeys,
    system: System,
    listeners: Listeners,
) -> Result<Running, AppError> {
    let store = Store::new(database);
    let secret = startup::prepare(&store, &system, &listeners.gateway).await?;
    connection_keys::create_own(settings, &store, &system).await?;
    let cursor_signer = CursorSigner::new(&secret).ok_or(StoreError::Unreadable("cursor secret"))?;
    let feed = Feed::new(store.clone(), system.clone(), listeners.instance, feed_options(settings));
    let feed = Arc::new(feed);
    let background = Background::default();
    let credentials = AcceptedCredentials::new(settings, operators, &background, system.clone())?;
    let services = start_services(settings, (&store, &system), &feed, &credentials, &background).await?;
    let leases = Arc::new(Leases::new(store.clone(), listeners.instance));
    follow_sources(&services.catalog, &feed, &leases, &background);
    let audit = audit::start(settings, &store, &secret, system.clone())?;
    let ids = RequestIds::new(system.random.as_ref())?;
    let limits = Arc::new(Limits::new(limit_options(settings)));
    let recorder = start_recorder(settings, (&store, &system), &audit, &background);
    let tracer = traces::start(settings, &system, &background)?;
    end_streams_at_shutdown(&feed, listeners.stop.clone(), &background);
    let authenticator = Authenticator::new(
        Arc::clone(&services.identity),
        Arc::clone(&limits),
        credentials.operators.clone(),
    );
    let metrics = Metrics {
        identity: Arc::clone(&services.identity),
        catalog: Arc::clone(&services.catalog),
        recorder: Arc::clone(&recorder),
        limits: Arc::clone(&limits),
        budget: Arc::clone(&services.budget),
        tracer: tracer.clone(),
        store: store.clone(),
        connections: listeners.connections.clone(),
        leases,
        operators: credentials.operators.clone(),
        token: settings.metrics.token.clone(),
        answers: AnswerMeter::default(),
        started: (system.clock.now() - OffsetDateTime::UNIX_EPOCH).as_seconds_f64(),
    };
    let shared =
        Shared { settings, services: &services, cursor_signer, authenticator, recorder, limits, tracer };
    let endpoint = shared.endpoint(&feed, listeners.stop.clone());
    let admin = admin::router(Arc::new(shared.admin(&feed)));
    let options = shared.surface_options(&credentials);
    let surfaces = Surfaces::new((endpoint, admin, metrics), Arc::clone(&feed) as _, options);
    let gateway = Gateway::new(surfaces, Arc::clone(&services.catalog), ids, gateway_options(settings));
    listeners.gateway.fill(Arc::new(gateway));
    Ok(Running {
        address: listeners.address,
        admin_address: listeners.admin_address,
        services,
        feed,
        store,
        audit,
        credentials,
        listeners,
        background,
        grace: settings.server.shutdown,
    })
}

/// Starts the change feed and the services that follow it.
async fn start_services(
    settings: &Settings,
    (store, system): (&Store, &System),
    feed: &Arc<Feed>,
    credentials: &AcceptedCredentials,
    background: &Background,
) -> Result<DatabaseServices, AppError> {
    let tokens = Arc::clone(&credentials.tokens);
    let services = DatabaseServices::new(settings, (store, system), feed, tokens);
    services.connections.check_keys().await??;
    let follower: Weak<dyn Follower> = Arc::downgrade(&(Arc::clone(&services.catalog) as Arc<dyn Follower>));
    feed.start(follower, &background.tasks, &background.stop);
    services.start(background, settings.cache.warm_agents).await;
    Ok(services)
}

/// Starts to watch content from outside and to scan mounts, those of the connections that this replica has leases of.
fn follow_sources(catalog: &Arc<Catalog>, feed: &Arc<Feed>, leases: &Arc<Leases>, background: &Background) {
    let subscriptions = Arc::clone(feed) as Arc<dyn Subscriptions>;
    let watcher = Watcher::new(Arc::clone(catalog), subscriptions, Arc::clone(leases));
    background.spawn(|stop| watcher.run(stop));
    let scanner = MountScanner::new(Arc::clone(catalog), Arc::clone(leases));
    background.spawn(|stop| scanner.run(stop));
    let leases = Arc::clone(leases);
    background.spawn(|stop| async move { leases.run(stop).await });
}

/// Starts to count usage, and makes the recorder of requests.
fn start_recorder(
    settings: &Settings,
    (store, system): (&Store, &System),
    audit: &RunningAudit,
    background: &Background,
) -> Arc<RequestRecorder> {
    let usage = Arc::new(UsageTracker::new(store.clone(), system.clone(), usage_options(settings)));
    let maintained = Arc::clone(&usage);
    background.spawn(|stop| async move { maintained.run_maintenance(stop).await });
    let tenants = (settings.metrics.tenants > 0).then(|| TenantMeter::new(settings.metrics.tenants));
    Arc::new(RequestRecorder::new(Arc::clone(&audit.audit), usage, tenants))
}

/// Ends streams once the listeners close. They do not wait for the token; a recheck makes them read it.
fn end_streams_at_shutdown(feed: &Arc<Feed>, closing: CancellationToken, background: &Background) {
    let feed = Arc::clone(feed);
    background.tasks.spawn(async move {
        closing.cancelled().await;
        feed.recheck_streams();
    });
}

fn gateway_options(settings: &Settings) -> GatewayOptions {
    let server = &settings.server;
    GatewayOptions {
        proxies: TrustedProxies::new(server.trusted_proxies.clone(), server.forwarded_header),
        deadline: server.request,
        most_headers: server.header_count,
        access_log: settings.log.access,
    }
}

/// What the surfaces are made of.
struct Shared<'a> {
    settings: &'a Settings,
    services: &'a DatabaseServices,
    cursor_signer: CursorSigner,
    authenticator: Authenticator,
    recorder: Arc<RequestRecorder>,
    limits: Arc<Limits>,
    tracer: Option<Arc<Tracer>>,
}

impl Shared<'_> {
    /// The MCP endpoints.
    fn endpoint(&self, feed: &Arc<Feed>, closing: CancellationToken) -> Endpoint {
        let services = Services {
            catalog: Arc::clone(&self.services.catalog),
            sessions: Arc::clone(&self.services.sessions),
            feed: Arc::clone(feed),
            recorder: Arc::clone(&self.recorder),
            budget: Arc::clone(&self.services.budget),
            tracer: self.tracer.clone(),
        };
        let keys = (self.cursor_signer.clone(), self.authenticator.clone());
        Endpoint::new(services, keys, endpoint_options(self.settings), closing)
    }

    /// The administration API.
    fn admin(&self, feed: &Arc<Feed>) -> Admin {
        let Self { settings, services, .. } = self;
        Admin {
            identity: Arc::clone(&services.identity),
            catalog: Arc::clone(&services.catalog),
            connections: Arc::clone(&services.connections),
            audit: AuditReader::new(Arc::clone(self.recorder.audit())),
            authenticator: self.authenticator.clone(),
            queries: Arc::new(QueryLimiter::new(
                settings.database.max_connections as usize,
                Arc::clone(feed) as _,
            )),
            usage: Arc::clone(self.recorder.usage()),
            settable: LimitBounds {
                dearest: settings.costs.highest().1,
                key: settings.limits.key,
                agent: settings.limits.agent,
                tenant: settings.limits.tenant,
            },
            costs: settings.costs,
            cursor_signer: self.cursor_signer.clone(),
            content_limits: content_limits(settings),
            manifests: ManifestLimits::new(settings.limits.manifest_bytes),
        }
    }

    fn surface_options(&self, credentials: &AcceptedCredentials) -> SurfaceOptions {
        let limits = &self.settings.limits;
        SurfaceOptions {
            recorder: Arc::clone(&self.recorder),
            limits: Arc::clone(&self.limits),
            tracer: self.tracer.clone(),
            origins: OriginRules::new(&self.settings.server),
            metadata: Arc::clone(&credentials.metadata),
            most_requests: limits.concurrent_requests,
            most_refused_bodies: limits.refused_bodies,
        }
    }
}
