//! Files of a commit of a git repository: cloned over HTTP into a cache, or opened in place below a root of files.
//!
//! No program is run, and no configuration but the repository's own is read. A clone is bare, and of one commit each. The
//! content of a file is that of its blob: filters and attributes do not apply, and symbolic links and submodules are not
//! content.

mod cache;
mod objects;
mod received;
mod remote;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use gix::ObjectId;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::objects::{Commit, Found, Listed};
use self::remote::Remote;
use crate::blocking::blocking;
use crate::egress::Egress;
use crate::error::{FetchError, SettingsError};
use crate::kind::SourceContext;
use crate::location::Location;
use crate::pace::Pace;
use crate::paths::{self, MAX_DEPTH, MAX_PENDING};
use crate::settings::{networks, read_secrets, read_settings};
use crate::source::{Bounds, Entry, Fetched, Source, Tree, Validator};
use crate::tls;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Settings {
    url: String,
    #[serde(rename = "ref")]
    reference: Option<String>,
    #[serde(default, deserialize_with = "networks")]
    allow_networks: Vec<IpNet>,
    ca: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secrets {
    username: Option<String>,
    password: Option<String>,
}

/// A connection to a git repository.
pub(crate) struct Git {
    origin: Origin,
    /// The branch, tag or commit; the repository's `HEAD` if there is none.
    reference: Reference,
}

enum Origin {
    Local { path: PathBuf, context: Arc<SourceContext> },
    Remote(Arc<Remote>),
}

impl fmt::Debug for Git {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Git").finish_non_exhaustive()
    }
}

/// What names a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Head,
    /// A full name, or one of a branch or tag.
    Name(String),
    Commit(ObjectId),
}

impl Reference {
    /// `None` if the text names no reference.
    fn parse(text: &str) -> Option<Self> {
        if text == "HEAD" {
            return Some(Self::Head);
        }
        if text.len() == 40
            && let Ok(commit) = ObjectId::from_hex(text.as_bytes())
        {
            return Some(Self::Commit(commit));
        }
        let full = format!("refs/heads/{text}");
        gix::validate::reference::name(full.as_str().into()).ok()?;
        Some(Self::Name(text.to_owned()))
    }

    /// The full names that it may stand for, the first that exists.
    fn candidates(&self) -> Vec<String> {
        match self {
            Self::Head => vec!["HEAD".to_owned()],
            Self::Name(name) if name.starts_with("refs/") => vec![name.clone()],
            Self::Name(name) => vec![format!("refs/heads/{name}"), format!("refs/tags/{name}")],
            Self::Commit(_) => Vec::new(),
        }
    }
}

impl Git {
    /// Builds the source of settings.
    pub(crate) fn new(
        settings: &Value,
        secrets: &Map<String, Value>,
        context: &Arc<SourceContext>,
    ) -> Result<Self, SettingsError> {
        let settings: Settings = read_settings(settings)?;
        let secrets: Secrets = read_secrets(secrets, "an object with `username` and `password`, texts")?;
        let reference = match &settings.reference {
            None => Reference::Head,
            Some(text) => Reference::parse(text).ok_or_else(|| {
                SettingsError::new("settings.ref", "must be the name of a branch or tag, or a commit")
            })?,
        };
        let origin = if settings.url.starts_with("http://") || settings.url.starts_with("https://") {
            let egress = Egress::new(settings.allow_networks, Arc::clone(&context.resolver));
            let tls = tls::configure(settings.ca.as_deref())?;
            let credentials = (secrets.username, secrets.password);
            let remote = Remote::new(&settings.url, credentials, egress, tls, Arc::clone(context));
            Origin::Remote(Arc::new(remote.map_err(|problem| SettingsError::new("settings.url", problem))?))
        } else {
            let refuse = |member: &str| {
                Err(SettingsError::new(member, "is not for a repository that is opened in place"))
            };
            if secrets.username.is_some() || secrets.password.is_some() {
                return refuse("secrets");
            }
            if !settings.allow_networks.is_empty() {
                return refuse("settings.allowNetworks");
            }
            if settings.ca.is_some() {
                return refuse("settings.ca");
            }
            let path = PathBuf::from(settings.url.strip_prefix("file://").unwrap_or(&settings.url));
            if !paths::is_below_root(&path, context) {
                let problem = "must be an HTTP URL, or a repository below one of `sources.file_roots`";
                return Err(SettingsError::new("settings.url", problem));
            }
            Origin::Local { path, context: Arc::clone(context) }
        };
        Ok(Self { origin, reference })
    }

    /// The commit that a reference names now, or named at some time since.
    async fn commit(
        &self,
        reference: Option<&str>,
        since: Option<Instant>,
        pace: Option<&Arc<Pace>>,
    ) -> Result<Commit, FetchError> {
        let reference = match reference {
            None => self.reference.clone(),
            Some(text) => Reference::parse(text).ok_or(FetchError::NotFound)?,
        };
        match &self.origin {
            Origin::Local { path, context } => {
                let (path, context) = (path.clone(), Arc::clone(context));
                blocking(move || Commit::open_in_place(&path, &context, &reference)).await
            }
            Origin::Remote(remote) => remote.commit(reference, since, pace).await,
        }
    }
}

impl Source for Git {
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(async move {
            let Location::Path { path, query, reference } = location else {
                return Err(FetchError::NotAllowed);
            };
            if !query.is_empty() {
                return Err(FetchError::NotAllowed);
            }
            let Bounds { bytes, entries, since, pace } = bounds;
            let commit = self.commit(reference.as_deref(), since, pace).await?;
            let (path, known) = (path.clone(), known.cloned());
            let find = move || Ok((commit.find_files(&path, known.as_ref(), bytes, entries)?, commit));
            let (Found::Files(files), commit) = blocking(find).await? else { return Ok(Fetched::Unchanged) };
            if let Some(pace) = pace {
                pace.reserve(files.bytes).await;
            }
            blocking(move || commit.read(files)).await
        })
    }

    fn scan<'a>(
        &'a self,
        tree: &'a Tree,
        include: &'a (dyn Fn(&str) -> bool + Send + Sync),
        since: Option<Instant>,
        pace: Option<&'a Arc<Pace>>,
    ) -> BoxStream<'a, Result<Vec<Entry>, FetchError>> {
        // A directory a step, the deepest first: what waits is at most the siblings of the directories above.
        let steps = stream::unfold(Scan::Start(tree, since, pace), move |scan| async move {
            match self.step(scan, include).await {
                Ok(None) => None,
                Ok(Some((entries, scan))) => Some((Ok(entries), scan)),
                Err(error) => Some((Err(error), Scan::End)),
            }
        });
        Box::pin(steps)
    }
}

/// How far a scan is.
enum Scan<'a> {
    Start(&'a Tree, Option<Instant>, Option<&'a Arc<Pace>>),
    /// Directories that are still to be listed: their paths, which end in `/`, and their trees.
    Rest(Arc<Commit>, Vec<(String, ObjectId)>),
    End,
}

impl Git {
    async fn step<'a>(
        &self,
        scan: Scan<'a>,
        include: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Option<(Vec<Entry>, Scan<'a>)>, FetchError> {
        let (commit, mut directories) = match scan {
            Scan::End => return Ok(None),
            Scan::Start(tree, since, pace) => {
                let commit = Arc::new(self.commit(tree.reference.as_deref(), since, pace).await?);
                let (path, opened) = (tree.path.clone(), Arc::clone(&commit));
                let root = blocking(move || opened.directory(&path)).await?;
                (commit, vec![(String::new(), root)])
            }
            Scan::Rest(commit, directories) => (commit, directories),
        };
        let Some((prefix, directory)) = directories.pop() else { return Ok(None) };
        let listing = Arc::clone(&commit);
        let listed = blocking(move || listing.list(directory, usize::MAX)).await?;
        let mut files = Vec::new();
        let is_deepest = prefix.matches('/').count() >= MAX_DEPTH;
        for Listed { name, id, is_directory } in listed {
            let path = if is_directory { format!("{prefix}{name}/") } else { format!("{prefix}{name}") };
            if is_directory && is_deepest || !include(&path) {
                continue;
            }
            if is_directory { directories.push((path, id)) } else { files.push((path, id)) }
        }
        if directories.len() > MAX_PENDING {
            return Err(FetchError::TooLarge);
        }
        let measured = Arc::clone(&commit);
        let entries = blocking(move || Ok(measured.entries(files))).await?;
        Ok(Some((entries, Scan::Rest(commit, directories))))
    }
}

#[cfg(test)]
mod tests;
