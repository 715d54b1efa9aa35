//! The running gateway: builds its parts, wires them, and owns their end.

mod credentials;
mod demo;
mod dispatch;
mod embedded;
mod places;
mod pulse;
mod serve;
mod tls;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Admin, LimitBounds};
use crate::config::Settings;
use crate::feed::{Feed, FeedOptions};
use crate::http::client_address::TrustedProxies;
use crate::http::cursor::CursorSeal;
use crate::http::limits::{LimitOptions, Limits};
use crate::http::origin::OriginRules;
use crate::http::request_id::RequestIds;
use crate::mcp::costs::Costs;
use crate::mcp::endpoint::{Endpoint, EndpointOptions};
use crate::model::feed::Follower;
use crate::model::key::KeyHash;
use crate::model::sources::Sources;
use crate::registry::Registry;
use crate::registry::limits::RegistryLimits;
use crate::registry::render::RendererLimits;
use crate::store::{AddressError, Store, StoreError, StoreOptions};

use dispatch::{Gateway, GatewayOptions, Surface};
use places::Places;
use pulse::Patience;
use serve::{ConnectionOptions, Door};
use tls::Tls;

pub use embedded::database;
pub use tls::TlsError;

/// How long a start waits for the database, and for another replica's migrations.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// How long what requests leave behind may take beyond them: writes of callers that went away, connections to close.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);

/// How many manifests are worked on at once; the others wait.
const MANIFESTS_AT_ONCE: usize = 4;

/// Why the gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The database does not do.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The private database does not start.
    #[error(transparent)]
    Embedded(#[from] crate::store::embedded::EmbeddedError),
    /// A database URL has not the form of one.
    #[error("{0} is not a PostgreSQL URL: {1}")]
    Url(&'static str, #[source] AddressError),
    /// TLS cannot be spoken.
    #[error("TLS cannot be spoken: {0}")]
    Tls(#[from] TlsError),
    /// A listener cannot be opened.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// A file of the data directory cannot be read or written.
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    /// What stands in the file of a key is none.
    #[error("{0} holds no key: it {1}")]
    Key(String, crate::model::key::KeyError),
    /// The machine gives no randomness.
    #[error(transparent)]
    Random(#[from] crate::model::sources::RandomError),
    /// The demo agent cannot be registered.
    #[error("the demo agent could not be registered: {0}")]
    Demo(String),
    /// The operator's key is missing.
    #[error("admin.operator_key is required with a database URL; `waggle key generate --operator` makes one")]
    NoOperatorKey,
    /// The system lets nobody hear signals.
    #[error("the signals that tell the gateway to stop cannot be heard: {0}")]
    Signals(#[source] std::io::Error),
    /// A signal came before the work was done.
    #[error("told to stop before it was done; run it again")]
    ToldToStop,
}

/// The OpenAPI document of the admin surface, as JSON.
pub fn openapi() -> String {
    admin::document()
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Running {
    /// Where the MCP endpoints are.
    pub address: SocketAddr,
    /// Where the admin surface is.
    pub admin_address: SocketAddr,
    /// Its use cases.
    pub registry: Arc<Registry>,
    feed: Arc<Feed>,
    store: Store,
    stop: CancellationToken,
    listeners: TaskTracker,
    background: TaskTracker,
    background_stop: CancellationToken,
    grace: Duration,
}

/// Starts a gateway on a database.
///
/// # Errors
/// When the database does not answer within a minute, cannot be migrated, or an address is taken.
pub async fn start(
    settings: &Settings,
    database: StoreOptions,
    operator: KeyHash,
    sources: Sources,
) -> Result<Running, AppError> {
    let store = Store::new(database);
    bring_up_to_date(&store).await?;
    let mut candidate = [0; 32];
    sources.random.fill(&mut candidate)?;
    let secret = store.cursor_secret(candidate).await?;
    let seal = CursorSeal::new(&secret).ok_or(StoreError::Unreadable("cursor secret"))?;
    let feed = Arc::new(Feed::new(store.clone(), sources.clone(), feed_options(settings))?);
    let registry = Arc::new(Registry::new(
        store.clone(),
        sources.clone(),
        Arc::clone(&feed) as Arc<_>,
        registry_limits(settings),
    ));
    let follower: Weak<dyn Follower> = Arc::downgrade(&(Arc::clone(&registry) as Arc<dyn Follower>));
    let (background, background_stop) = (TaskTracker::new(), CancellationToken::new());
    feed.start(follower, &background, &background_stop);
    background.spawn({
        let (registry, stop) = (Arc::clone(&registry), background_stop.clone());
        async move { registry.keep_house(stop).await }
    });
    let ids = RequestIds::new(sources.random.as_ref())?;
    let stop = CancellationToken::new();
    let limits = Arc::new(Limits::new(limit_options(settings)));
    let keys = (seal, operator);
    let endpoint = endpoint(settings, &registry, &feed, keys.clone(), Arc::clone(&limits), stop.clone());
    let gateway = Arc::new(gateway(settings, endpoint, &registry, &feed, keys, limits, ids));
    let listening = Listening { gateway, registry, feed, store, stop };
    let running = listen(settings, listening).await?;
    Ok(Running { background, background_stop, ..running })
}

/// Brings the schema up to date, waiting for a database that is still starting.
///
/// # Errors
/// When it does not answer within a minute, or a migration fails.
async fn bring_up_to_date(store: &Store) -> Result<(), StoreError> {
    let deadline = tokio::time::Instant::now() + START_PATIENCE;
    loop {
        match store.migrate(START_PATIENCE).await {
            Err(StoreError::Away(error)) if tokio::time::Instant::now() < deadline => {
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            done => return done,
        }
    }
}

fn feed_options(settings: &Settings) -> FeedOptions {
    FeedOptions {
        probe: settings.database.probe,
        sweep: settings.database.sweep,
        notify: settings.changes.notify,
        patience: settings.database.acquire.min(Duration::from_secs(2)),
    }
}

fn registry_limits(settings: &Settings) -> RegistryLimits {
    let half = (settings.database.max_connections / 2).max(1) as usize;
    RegistryLimits {
        stale: settings.access.stale,
        cached_agents: settings.cache.agents,
        cached_tenants: settings.cache.tenants,
        cached_sessions: settings.cache.sessions,
        cached_keys: settings.access.unknown_keys_remembered as u64,
        cached_content_bytes: settings.cache.content_bytes,
        unknown_keys_per_second: settings.access.unknown_keys_per_second,
        concurrent_fills: (half / 2).max(1),
        concurrent_writes: half,
        write_queue: settings.writes.queue_per_agent,
        write_wait: settings.writes.wait,
        write_deadline: settings.database.statement,
        load_deadline: settings.database.acquire,
        resources_per_agent: settings.limits.resources_per_agent as usize,
        templates_per_agent: settings.limits.templates_per_agent as usize,
        prompts_per_agent: settings.limits.prompts_per_agent as usize,
        embedded_bytes: settings.limits.content_bytes,
        session_idle: settings.sessions.idle,
        subscriptions_per_session: settings.sessions.subscriptions,
        sessions_per_principal: settings.sessions.per_principal,
        retain_changes: settings.changes.retain,
        cached_compiled_bytes: settings.cache.compiled_bytes,
        rendering: RendererLimits {
            at_once: settings.limits.concurrent_renders,
            waiting: settings.limits.waiting_renders,
            ..RendererLimits::default()
        },
        page_size: settings.mcp.page_size,
    }
}

fn endpoint(
    settings: &Settings,
    registry: &Arc<Registry>,
    feed: &Arc<Feed>,
    keys: (CursorSeal, KeyHash),
    limits: Arc<Limits>,
    closing: CancellationToken,
) -> Endpoint {
    let options = EndpointOptions {
        body_bytes: settings.limits.body_bytes,
        result_bytes: settings.cache.result_bytes,
        ttl: settings.mcp.ttl,
        // Less than the whole request may take, so that it is the body that is said to be late.
        patience: settings.server.request.mul_f32(0.9),
        // A sign of life keeps a session alive as well.
        keep_alive: settings.sessions.keep_alive.min(settings.sessions.idle / 4),
        streams_per_key: settings.limits.streams_per_key,
        streams: settings.limits.streams,
        uris_per_stream: settings.sessions.subscriptions,
        costs: costs(settings),
    };
    Endpoint::new(Arc::clone(registry), Arc::clone(feed), keys, limits, options, closing)
}

fn limit_options(settings: &Settings) -> LimitOptions {
    let limits = &settings.limits;
    LimitOptions {
        key: limits.key,
        agent: limits.agent,
        tenant: limits.tenant,
        address: limits.address,
        concurrent_per_key: limits.concurrent_per_key,
        concurrent_per_agent: limits.concurrent_per_agent,
        penalty: limits.address_penalty,
        remembered: limits.remembered,
    }
}

fn costs(settings: &Settings) -> Costs {
    let crate::config::Costs { list, read, prompt, complete, stream, discover, other } = settings.costs;
    Costs { list, read, prompt, complete, stream, discover, other }
}

fn gateway(
    settings: &Settings,
    endpoint: Endpoint,
    registry: &Arc<Registry>,
    feed: &Arc<Feed>,
    (seal, operator): (CursorSeal, KeyHash),
    limits: Arc<Limits>,
    ids: RequestIds,
) -> Gateway {
    let settable = LimitBounds {
        dearest: settings.costs.dearest(),
        key: settings.limits.key,
        agent: settings.limits.agent,
        tenant: settings.limits.tenant,
    };
    let admin = Admin {
        registry: Arc::clone(registry),
        limits,
        settable,
        seal,
        operator,
        content_bytes: settings.limits.content_bytes,
        manifest_bytes: settings.limits.manifest_bytes,
        manifests: Arc::new(Semaphore::new(MANIFESTS_AT_ONCE)),
    };
    let hosts = settings.server.allowed_hosts.as_ref();
    let origins = OriginRules {
        hosts: hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect()),
        origins: settings.server.allowed_origins.clone(),
    };
    let options = GatewayOptions {
        origins,
        proxies: TrustedProxies::new(settings.server.trusted_proxies.clone()),
        deadline: settings.server.request,
        most_requests: settings.limits.concurrent_requests,
    };
    Gateway::new(endpoint, admin::router(Arc::new(admin)), Arc::clone(feed), ids, options)
}

/// What is served, and what it stands on.
struct Listening {
    gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    feed: Arc<Feed>,
    store: Store,
    stop: CancellationToken,
}

/// Opens the listeners, one or two, and serves on them.
async fn listen(settings: &Settings, listening: Listening) -> Result<Running, AppError> {
    let Listening { gateway, registry, feed, store, stop } = listening;
    let listeners = TaskTracker::new();
    let tls = match &settings.server.tls {
        Some(files) => Some(Arc::new(Tls::load(files.clone()).await?)),
        None => None,
    };
    let (listener, address) = bind(settings.server.listen).await?;
    let mut admin_address = address;
    let mut surface = Surface::All;
    let door = |surface| door(settings, Arc::clone(&gateway), surface, tls.clone());
    if let Some(wanted) = settings.admin.listen {
        let (admin, bound) = bind(wanted).await?;
        (admin_address, surface) = (bound, Surface::Mcp);
        listeners.spawn(door(Surface::Admin).serve(admin, stop.clone()));
    }
    listeners.spawn(door(surface).serve(listener, stop.clone()));
    if let Some(tls) = tls {
        listeners.spawn(tls.follow(stop.clone()));
    }
    listeners.close();
    Ok(Running {
        address,
        admin_address,
        registry,
        feed,
        store,
        stop,
        listeners,
        background: TaskTracker::new(),
        background_stop: CancellationToken::new(),
        grace: settings.server.shutdown,
    })
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), AppError> {
    let listener = TcpListener::bind(address).await.map_err(|error| AppError::Listen(address, error))?;
    let address = listener.local_addr().map_err(|error| AppError::Listen(address, error))?;
    Ok((listener, address))
}

fn door(settings: &Settings, gateway: Arc<Gateway>, surface: Surface, tls: Option<Arc<Tls>>) -> Door {
    let server = &settings.server;
    let proxies = TrustedProxies::new(server.trusted_proxies.clone());
    let options = ConnectionOptions {
        patience: Patience { head: server.head, idle: server.idle },
        header_count: server.header_count,
        header_bytes: server.header_bytes,
        grace: server.shutdown,
    };
    let places = Arc::new(Places::new(server.connections, server.connections_per_address, proxies));
    Door { gateway, surface, places, tls, options }
}

impl Running {
    /// Stops accepting, ends the streams, lets requests under way finish within `server.shutdown_seconds`, then leaves, whether the
    /// database still answers or not.
    pub async fn stop(self) {
        let deadline = tokio::time::Instant::now() + self.grace + AFTER_REQUESTS;
        self.stop.cancel();
        self.listeners.wait().await;
        let leaving = async {
            self.feed.end_streams().await;
            self.registry.drain().await;
            self.background_stop.cancel();
            self.background.close();
            self.background.wait().await;
            self.store.close().await;
        };
        if tokio::time::timeout_at(deadline, leaving).await.is_err() {
            self.background_stop.cancel();
            tracing::warn!("the database does not answer; leaving without its last word");
        }
    }
}

/// Runs a gateway until the process is told to stop, which it may be while it starts; with `demo`, with the demo agent
/// registered.
///
/// # Errors
/// As [`start`], and when the private database or the demo agent cannot be had.
pub async fn run(settings: Settings, demo: bool) -> Result<(), AppError> {
    let mut told = pin!(serve::told_to_stop().map_err(AppError::Signals)?);
    let (database, embedded) = tokio::select! {
        database = database(&settings) => database?,
        () = &mut told => return Ok(()),
    };
    let running = tokio::select! {
        running = begin(&settings, database, embedded.is_some(), demo) => Some(running?),
        () = &mut told => None,
    };
    if let Some(running) = running {
        told.await;
        tracing::info!("stopping");
        running.stop().await;
    }
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// Starts the gateway of this process, with the demo agent if that is wanted.
async fn begin(
    settings: &Settings,
    database: StoreOptions,
    embedded: bool,
    demo: bool,
) -> Result<Running, AppError> {
    let sources = Sources::system();
    let operator = credentials::operator(settings, embedded, &sources)?;
    let running = start(settings, database, operator, sources).await?;
    tracing::info!(address = %running.address, admin = %running.admin_address, "serving");
    if demo {
        demo::register(settings, &running).await?;
    }
    Ok(running)
}

/// Brings the schema of the configured database up to date.
///
/// # Errors
/// As [`start`], and when the process is told to stop first.
pub async fn migrate(settings: Settings) -> Result<(), AppError> {
    let mut told = pin!(serve::told_to_stop().map_err(AppError::Signals)?);
    let (database, embedded) = tokio::select! {
        database = database(&settings) => database?,
        () = &mut told => return Err(AppError::ToldToStop),
    };
    let store = Store::new(database);
    let migrated = tokio::select! {
        migrated = bring_up_to_date(&store) => migrated.map_err(AppError::from),
        () = &mut told => Err(AppError::ToldToStop),
    };
    store.close().await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    migrated
}
