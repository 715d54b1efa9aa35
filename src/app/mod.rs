//! The running gateway: builds its parts, wires them, and owns their end.

mod audit;
mod credentials;
mod demo;
mod dispatch;
mod embedded;
mod error;
mod exposition;
mod metrics;
mod options;
mod places;
mod pulse;
mod serve;
mod signing;
mod tls;
mod verify;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Admin, LimitBounds};
use crate::audit::Started;
use crate::config::Settings;
use crate::feed::Feed;
use crate::http::client_address::TrustedProxies;
use crate::http::cursor::CursorSeal;
use crate::http::limits::Limits;
use crate::http::metadata::Metadata;
use crate::http::meter::Meter;
use crate::http::origin::OriginRules;
use crate::http::request_id::RequestIds;
use crate::mcp::endpoint::{Endpoint, Grounds};
use crate::model::feed::Follower;
use crate::model::key::KeyHash;
use crate::model::sources::Sources;
use crate::registry::Registry;
use crate::store::{Store, StoreError, StoreOptions};
use crate::tokens::Tokens;
use crate::usage::UsageBook;

use dispatch::{Gateway, GatewayOptions, Surface};
use metrics::Metrics;
use options::{
    connection_options, endpoint_options, feed_options, limit_options, registry_limits, usage_options,
};
use places::Places;
use serve::Door;
use tls::Tls;

pub use embedded::database;
pub use error::AppError;
pub use signing::audit_key;
pub use tls::TlsError;
pub use verify::{Verdict, verify_audit};

/// How long a start waits for the database, and for another replica's migrations.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// How long what requests leave behind may take beyond them: writes of callers that went away, connections to close.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);

/// How many manifests are worked on at once; the others wait.
const MANIFESTS_AT_ONCE: usize = 4;

/// The listeners, as they are told of.
const MAIN_DOOR: &str = "main";
const ADMIN_DOOR: &str = "admin";

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
    audit: Started,
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
    let (background, background_stop) = (TaskTracker::new(), CancellationToken::new());
    let tokens = Tokens::new(&settings.tokens, &settings.server.public_url)?;
    if let Some(tokens) = &tokens {
        tokens.start(&background, &background_stop);
    }
    let registry = Arc::new(Registry::new(
        store.clone(),
        sources.clone(),
        Arc::clone(&feed) as Arc<_>,
        tokens,
        registry_limits(settings),
    ));
    let follower: Weak<dyn Follower> = Arc::downgrade(&(Arc::clone(&registry) as Arc<dyn Follower>));
    feed.start(follower, &background, &background_stop);
    background.spawn({
        let (registry, stop) = (Arc::clone(&registry), background_stop.clone());
        async move { registry.keep_house(stop).await }
    });
    let audit = audit::start(settings, &store, &secret, sources.clone())?;
    let ids = RequestIds::new(sources.random.as_ref())?;
    let stop = CancellationToken::new();
    let limits = Arc::new(Limits::new(limit_options(settings)));
    let usage = Arc::new(UsageBook::new(store.clone(), sources.clone(), usage_options(settings)));
    background.spawn({
        let (usage, stop) = (Arc::clone(&usage), background_stop.clone());
        async move { usage.keep(stop).await }
    });
    let keys = (seal, operator);
    let (feed_of, log) = (Arc::clone(&feed), Arc::clone(&audit.audit));
    let grounds = Grounds { registry: Arc::clone(&registry), feed: feed_of, audit: log, limits, usage };
    let endpoint = endpoint(settings, grounds.clone(), keys.clone(), stop.clone());
    let doors = doors(settings);
    let metrics = Metrics {
        meter: Meter::default(),
        grounds: grounds.clone(),
        store: store.clone(),
        doors: doors.clone(),
        operator: keys.1,
    };
    let gateway = Arc::new(gateway(settings, endpoint, grounds, keys, metrics, ids));
    let listening = Listening { gateway, doors, registry, feed, store, audit, stop };
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

fn endpoint(
    settings: &Settings,
    grounds: Grounds,
    keys: (CursorSeal, KeyHash),
    closing: CancellationToken,
) -> Endpoint {
    Endpoint::new(grounds, keys, endpoint_options(settings), closing)
}

fn gateway(
    settings: &Settings,
    endpoint: Endpoint,
    grounds: Grounds,
    (seal, operator): (CursorSeal, KeyHash),
    metrics: Metrics,
    ids: RequestIds,
) -> Gateway {
    let Grounds { registry, audit, limits, usage, .. } = grounds;
    let settable = LimitBounds {
        dearest: settings.costs.dearest().1,
        key: settings.limits.key,
        agent: settings.limits.agent,
        tenant: settings.limits.tenant,
    };
    let admin = Admin {
        registry: Arc::clone(&registry),
        audit: Arc::clone(&audit),
        limits,
        usage,
        settable,
        costs: settings.costs,
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
    let issuers = settings.tokens.issuers.iter().map(|entry| entry.issuer.to_string()).collect();
    let options = GatewayOptions {
        origins,
        metadata: Metadata::new(settings.server.public_url.clone(), issuers),
        proxies: TrustedProxies::new(
            settings.server.trusted_proxies.clone(),
            settings.server.forwarded_header,
        ),
        deadline: settings.server.request,
        most_requests: settings.limits.concurrent_requests,
        most_headers: settings.server.header_count,
    };
    Gateway::new(endpoint, admin::router(Arc::new(admin)), registry, audit, ids, metrics, options)
}

/// What is served, and what it stands on.
struct Listening {
    gateway: Arc<Gateway>,
    doors: Vec<(&'static str, Arc<Places>)>,
    registry: Arc<Registry>,
    feed: Arc<Feed>,
    store: Store,
    audit: Started,
    stop: CancellationToken,
}

/// Opens the listeners, one or two, and serves on them.
async fn listen(settings: &Settings, listening: Listening) -> Result<Running, AppError> {
    let Listening { gateway, doors, registry, feed, store, audit, stop } = listening;
    let listeners = TaskTracker::new();
    let tls = match &settings.server.tls {
        Some(files) => Some(Arc::new(Tls::load(files.clone()).await?)),
        None => None,
    };
    let (mut address, mut admin_address) = (settings.server.listen, None);
    for (name, places) in doors {
        let (listener, surface) = if name == ADMIN_DOOR {
            let (listener, bound) = bind(settings.admin.listen.unwrap_or(address)).await?;
            admin_address = Some(bound);
            (listener, Surface::Admin)
        } else {
            let (listener, bound) = bind(settings.server.listen).await?;
            address = bound;
            (listener, if settings.admin.listen.is_some() { Surface::Mcp } else { Surface::All })
        };
        let options = connection_options(settings);
        let door = Door { gateway: Arc::clone(&gateway), surface, places, tls: tls.clone(), options };
        listeners.spawn(door.serve(listener, stop.clone()));
    }
    if let Some(tls) = tls {
        listeners.spawn(tls.follow(stop.clone()));
    }
    listeners.close();
    Ok(Running {
        address,
        admin_address: admin_address.unwrap_or(address),
        registry,
        feed,
        store,
        audit,
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

/// The places of each listener, by its name.
fn doors(settings: &Settings) -> Vec<(&'static str, Arc<Places>)> {
    let server = &settings.server;
    let places = || {
        let proxies = TrustedProxies::new(server.trusted_proxies.clone(), server.forwarded_header);
        Arc::new(Places::new(server.connections, server.connections_per_address, proxies))
    };
    let admin = settings.admin.listen.map(|_| (ADMIN_DOOR, places()));
    std::iter::once((MAIN_DOOR, places())).chain(admin).collect()
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
            self.audit.stop().await;
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
    let own;
    let settings = if embedded {
        own = signing::with_own_key(settings.clone(), &sources)?;
        &own
    } else {
        settings
    };
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
