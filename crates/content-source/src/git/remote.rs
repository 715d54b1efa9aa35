//! Clones of repositories over HTTP, each of one commit of a reference at a time.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as BackendMutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gix::bstr::BStr;
use gix::protocol::transport::client::blocking_io::http;
use gix::remote::Direction;
use gix::remote::fetch::{Shallow, Tags};
use gix::{ObjectId, Repository};
use parking_lot::Mutex;
use reqwest::blocking::ClientBuilder;
use rustls::ClientConfig;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::interval;
use url::Url;

use super::Reference;
use super::cache::{Lease, Slot, evict};
use super::objects::{Commit, options, size};
use super::received::{Bounded, Receive};
use crate::blocking::{CancelOnDrop, blocking};
use crate::egress::Egress;
use crate::error::FetchError;
use crate::kind::SourceContext;
use crate::pace::Pace;

/// How often the size of a clone is compared with its budget while it is received.
const SIZE_INTERVAL: Duration = Duration::from_millis(200);

/// How long the server may take for each part of an answer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// After how many packs a clone is made anew: each fetch adds one, and old ones are not removed.
const MAX_PACKS: usize = 64;

/// The maximum number of references of which it is known what they named.
const MAX_REFERENCES: usize = 64;

/// A repository that is cloned.
pub(super) struct Remote {
    /// Without credentials.
    url: Url,
    host: String,
    port: u16,
    username: String,
    password: Option<String>,
    egress: Egress,
    tls: ClientConfig,
    context: Arc<SourceContext>,
    slot: Slot,
    /// One update at a time.
    updating: Arc<AsyncMutex<()>>,
    /// What the last update of each reference found.
    last: Mutex<BTreeMap<Reference, Checked>>,
}

/// What a reference named, asked at a time; `None` if there was none of its name.
#[derive(Clone, Copy)]
struct Checked {
    began: Instant,
    commit: Option<ObjectId>,
}

impl Remote {
    /// Parses a URL.
    ///
    /// # Errors
    /// Says what is wrong, to be continued from the name of the member.
    pub(super) fn new(
        url: &str,
        (username, password): (Option<String>, Option<String>),
        egress: Egress,
        tls: ClientConfig,
        context: Arc<SourceContext>,
    ) -> Result<Self, &'static str> {
        const EXPECTED: &str = "must be a URL such as https://git.example.com/team/repository.git";
        let mut url = Url::parse(url).map_err(|_| EXPECTED)?;
        if url.password().is_some() {
            return Err("must not have a password: it belongs into `secrets`");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must not have a query or a fragment");
        }
        let username = username.unwrap_or_else(|| url.username().to_owned());
        url.set_username("").map_err(|()| EXPECTED)?;
        let host = url.host_str().ok_or(EXPECTED)?.to_owned();
        let port = url.port_or_known_default().ok_or(EXPECTED)?;
        // Others may see other things there, or nothing.
        let identity = format!("{username}\n{url}");
        let key =
            gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::object::Kind::Blob, identity.as_bytes());
        let key = key.map_err(|_| EXPECTED)?;
        let slot = Slot::new(&context.cache_dir, &key.to_string());
        Ok(Self {
            url,
            host,
            port,
            username,
            password,
            egress,
            tls,
            context,
            slot,
            updating: Arc::default(),
            last: Mutex::default(),
        })
    }

    /// The commit that a reference names now, or named at some time since. The work ends when the future is dropped, and
    /// when the clone exceeds the budget while it is received.
    pub(super) async fn commit(
        self: &Arc<Self>,
        reference: Reference,
        since: Option<Instant>,
        pace: Option<&Arc<Pace>>,
    ) -> Result<Commit, FetchError> {
        let asked = since.unwrap_or_else(Instant::now);
        if since.is_some() {
            let (remote, reference) = (Arc::clone(self), reference.clone());
            if let Some(known) = blocking(move || remote.known(&reference, asked)).await? {
                return Ok(known);
            }
        }
        let addresses = self.resolve().await?;
        // Waited for here, where the caller may give up, and no thread waits. Held by the work until that ends.
        let updating = Arc::clone(&self.updating).lock_owned().await;
        let cancel = CancelOnDrop::default();
        let receive = Receive::new(pace.cloned(), cancel.flag());
        let updater = Arc::clone(self);
        let update = blocking(move || {
            let _updating = updating;
            updater.update(&reference, addresses, asked, &receive)
        });
        let mut update = std::pin::pin!(update);
        let mut ticks = interval(SIZE_INTERVAL);
        let mut is_too_large = false;
        let commit = loop {
            tokio::select! {
                commit = &mut update => break commit,
                _ = ticks.tick() => {
                    let measured = Arc::clone(self);
                    if blocking(move || Ok(measured.is_over_budget())).await? {
                        is_too_large = true;
                        cancel.cancel();
                    }
                }
            }
        };
        if !is_too_large {
            return commit;
        }
        // With it its use of the clone ends.
        drop(commit);
        let emptied = Arc::clone(self);
        blocking(move || {
            emptied.remove();
            Ok(())
        })
        .await?;
        Err(FetchError::TooLarge)
    }

    /// The addresses of the server, which were checked.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, FetchError> {
        let addresses = self.egress.resolve(&self.host, self.port).await?;
        // A password is not sent in clear but to where the operator says so.
        let is_named = addresses.iter().all(|address| self.egress.names(address.ip()));
        if self.password.is_some() && self.url.scheme() == "http" && !is_named {
            return Err(FetchError::NotAllowed);
        }
        Ok(addresses)
    }

    /// Whether the clone exceeds the budget of all clones.
    fn is_over_budget(&self) -> bool {
        size(&self.slot.directory) > self.context.cache_bytes
    }

    /// Removes the clone unless it is used.
    fn remove(&self) {
        self.slot.remove();
    }

    /// The commit that a reference named when it was asked since a time, if the clone has it.
    fn known(&self, reference: &Reference, since: Instant) -> Result<Option<Commit>, FetchError> {
        let known = self.last.lock().get(reference).copied().filter(|last| last.began >= since);
        let Some(known) = known else { return Ok(None) };
        let commit = known.commit.ok_or(FetchError::NotFound)?;
        let lease = self.slot.lease()?;
        match gix::open_opts(&self.slot.directory, options()) {
            Ok(repository) if repository.has_object(commit) => {
                Commit::new(repository, commit, Some(lease)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The commit that a reference names, or named when it was asked since a time, fetched if the clone does not have it. The
    /// caller has the lock of updates.
    fn update(
        &self,
        reference: &Reference,
        addresses: Vec<SocketAddr>,
        since: Instant,
        receive: &Arc<Receive>,
    ) -> Result<Commit, FetchError> {
        if receive.interrupt().load(Ordering::Relaxed) {
            return Err(FetchError::Timeout);
        }
        // By another that this one has waited for.
        if let Some(known) = self.known(reference, since)? {
            return Ok(known);
        }
        let (repository, lease) = self.open(self.slot.lease()?)?;
        let began = Instant::now();
        let fetched = self.fetch(&repository, reference, addresses, receive);
        if fetched.is_err() && receive.is_used_up() {
            drop((repository, lease));
            self.remove();
            return Err(FetchError::TooLarge);
        }
        if let Ok(_) | Err(FetchError::NotFound) = fetched {
            let mut last = self.last.lock();
            if last.len() >= MAX_REFERENCES {
                last.clear();
            }
            last.insert(reference.clone(), Checked { began, commit: fetched.as_ref().ok().copied() });
        }
        let commit = fetched?;
        if self.is_over_budget() {
            drop((repository, lease));
            self.remove();
            return Err(FetchError::TooLarge);
        }
        evict(&self.context.cache_dir, self.context.cache_bytes);
        // With the packs that were added.
        let repository =
            gix::open_opts(&self.slot.directory, options()).map_err(|_| FetchError::Unreachable)?;
        Commit::new(repository, commit, Some(lease))
    }

    /// Opens the clone, or makes an empty one.
    fn open(&self, lease: Lease) -> Result<(Repository, Lease), FetchError> {
        let packs = self.slot.directory.join("objects/pack").read_dir().map_or(0, Iterator::count);
        // A pack, its index, and perhaps more.
        let is_worn = packs > MAX_PACKS * 2;
        if !is_worn && let Ok(repository) = gix::open_opts(&self.slot.directory, options()) {
            return Ok((repository, lease));
        }
        drop(lease);
        if self.slot.directory.exists() && !self.slot.remove() && !is_worn {
            return Err(FetchError::Busy);
        }
        let lease = self.slot.lease()?;
        if let Ok(repository) = gix::open_opts(&self.slot.directory, options()) {
            return Ok((repository, lease));
        }
        std::fs::create_dir_all(&self.slot.directory).map_err(|_| FetchError::Unreachable)?;
        let created = gix::ThreadSafeRepository::init_opts(
            &self.slot.directory,
            gix::create::Kind::Bare,
            gix::create::Options::default(),
            options(),
        );
        Ok((created.map_err(|_| FetchError::Unreachable)?.to_thread_local(), lease))
    }

    /// Asks what a reference names, and fetches it.
    fn fetch(
        &self,
        repository: &Repository,
        reference: &Reference,
        addresses: Vec<SocketAddr>,
        receive: &Arc<Receive>,
    ) -> Result<ObjectId, FetchError> {
        let candidates = reference.candidates();
        // What was fetched is kept under a name, so that the next fetch is of what is new.
        let specs: Vec<String> = match reference {
            Reference::Commit(id) => vec![id.to_string()],
            Reference::Head => vec!["+HEAD:refs/fetched/HEAD".to_owned()],
            Reference::Name(_) => {
                candidates.iter().map(|name| format!("+{name}:refs/fetched/{name}")).collect()
            }
        };
        let remote = repository
            .remote_at_without_url_rewrite(self.url.as_str())
            .and_then(|remote| {
                let specs = specs.iter().map(|spec| BStr::new(spec.as_str()));
                remote.with_fetch_tags(Tags::None).with_refspecs(specs, Direction::Fetch)
            })
            .map_err(|_| FetchError::NotFound)?;
        let (url, version) =
            remote.sanitized_url_and_version(Direction::Fetch).map_err(|error| failure(&error))?;
        let client = Bounded { client: http::reqwest::Remote::default(), receive: Arc::clone(receive) };
        let transport = http::Transport::new_http(client, url, version, false);
        let connection = remote
            .to_connection_with_transport(transport)
            .with_transport_options(Box::new(self.transport_options(addresses)))
            // They are in the headers; no program is asked for others.
            .with_credentials(|_| Ok(None));
        let prepared = connection
            .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())
            .map_err(|error| failure(&error))?;
        let mappings = &prepared.ref_map().mappings;
        let named = |name: &str| {
            let is_named = |mapping: &&gix::remote::fetch::refmap::Mapping| {
                mapping.remote.as_name().is_some_and(|found| found == name)
            };
            mappings.iter().find(is_named)?.remote.peeled_id()
        };
        let commit = match reference {
            Reference::Commit(id) => *id,
            Reference::Head | Reference::Name(_) => {
                let found = candidates.iter().find_map(|name| named(name));
                found.ok_or(FetchError::NotFound)?.to_owned()
            }
        };
        if !repository.has_object(commit) {
            let depth = Shallow::DepthAtRemote(std::num::NonZeroU32::MIN);
            receive.allow(self.context.cache_bytes);
            let received = prepared.with_shallow(depth).receive(gix::progress::Discard, receive.interrupt());
            received.map_err(|error| failure(&error))?;
        }
        Ok(commit)
    }

    /// The header of the credentials, which goes to no other server: redirects are not followed.
    fn authorization(&self) -> Option<String> {
        let credentials = format!("{}:{}", self.username, self.password.as_ref()?);
        Some(format!("Authorization: Basic {}", STANDARD.encode(credentials)))
    }

    /// A client that connects to the addresses that were checked, through no proxy, and follows no redirect.
    fn transport_options(&self, addresses: Vec<SocketAddr>) -> http::Options {
        let (host, tls) = (self.host.clone(), self.tls.clone());
        let configure = move |builder: ClientBuilder| {
            Ok(builder
                .no_proxy()
                .tls_backend_preconfigured(tls.clone())
                .resolve_to_addrs(&host, &addresses)
                .timeout(SILENCE_TIMEOUT)
                .connect_timeout(SILENCE_TIMEOUT))
        };
        let backend =
            http::reqwest::Options { configure_client: Some(Box::new(configure)), configure_request: None };
        let backend: Arc<BackendMutex<dyn Any + Send + Sync>> = Arc::new(BackendMutex::new(backend));
        http::Options {
            extra_headers: self.authorization().into_iter().collect(),
            follow_redirects: http::options::FollowRedirects::None,
            backend: Some(backend),
            ..http::Options::default()
        }
    }
}

/// What an error of a fetch means.
fn failure(error: &gix::Error) -> FetchError {
    let status = error.iter_errors().find_map(|error| error.downcast_ref::<reqwest::Error>()?.status());
    if let Some(status) = status.map(|status| status.as_u16()).filter(|status| *status >= 400) {
        return FetchError::of_status(status, None);
    }
    if error.is_unauthenticated() || error.is_permission_denied() {
        FetchError::Denied
    } else if error.is_resource_exhausted() {
        FetchError::TooLarge
    } else if error.is_not_found() {
        FetchError::NotFound
    } else if error.is_corrupted() {
        FetchError::BadContent
    } else {
        FetchError::Unreachable
    }
}
