//! Directories of this machine: the content is that of regular files below `root`.
//!
//! A path is opened relative to the opened root, by a system call that does not leave it: neither `..` nor symbolic links
//! nor those made during the call lead out. Only regular files are read; what is opened is checked again, and opened
//! without blocking, so that a pipe or a device put in place of a file delays nothing.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::blocking::blocking;
use crate::error::{FetchError, SettingsError};
use crate::kind::SourceContext;
use crate::location::{Location, Path, Segment};
use crate::pace::Pace;
use crate::paths;
use crate::settings::{read_secrets, read_settings};
use crate::source::{Bounds, ChangeHint, Entry, Fetched, Source, Tree, Validator};

mod read;
mod scan;
mod watch;

/// How many threads a connection occupies at a time. One whose file system hangs stays occupied.
const MAX_THREADS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    root: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secrets {}

/// A connection to a directory.
pub(crate) struct Folder {
    root: PathBuf,
    context: Arc<SourceContext>,
    threads: Arc<Semaphore>,
    watches: Arc<watch::Watches>,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").finish_non_exhaustive()
    }
}

/// Builds the source from settings and secrets.
pub(crate) fn connect(
    settings: &Value,
    secrets: &Map<String, Value>,
    context: &Arc<SourceContext>,
) -> Result<Folder, SettingsError> {
    let Settings { root } = read_settings(settings)?;
    let Secrets {} = read_secrets(secrets, "empty: a directory has none")?;
    let refuse = |problem| Err(SettingsError::new("settings.root", problem));
    if !paths::is_below_root(&root, context) {
        return refuse("must be a directory below one of `sources.file_roots`");
    }
    // One that does not exist yet is checked when it is opened, as each is.
    if paths::resolve(&root, context) == Err(FetchError::NotAllowed) {
        return refuse(
            "must hold neither keys nor data of this process, and not lead out of `sources.file_roots`",
        );
    }
    let threads = Arc::new(Semaphore::new(MAX_THREADS));
    Ok(Folder { root, context: Arc::clone(context), threads, watches: Arc::default() })
}

impl Folder {
    /// Runs work with the opened root on a thread. The work ends at its next step when the future is dropped.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Dir, &CancellationToken) -> Result<T, FetchError> + Send + 'static,
    ) -> Result<T, FetchError> {
        let (root, context) = (self.root.clone(), Arc::clone(&self.context));
        self.run_without_root(move |abandoned| {
            // Opened for each call: the directory may be replaced by another.
            let (dir, _) = open_root(&root, &context)?;
            work(&dir, abandoned)
        })
        .await
    }

    async fn run_without_root<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> Result<T, FetchError> + Send + 'static,
    ) -> Result<T, FetchError> {
        let permit = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| FetchError::Busy)?;
        let abandoned = CancellationToken::new();
        let _guard = abandoned.clone().drop_guard();
        blocking(move || {
            let _permit = permit;
            work(&abandoned)
        })
        .await
    }

    async fn fetch(
        &self,
        location: &Location,
        known: Option<&Validator>,
        bounds: Bounds<'_>,
    ) -> Result<Fetched, FetchError> {
        let Location::Path { path, query, reference: None } = location else {
            return Err(FetchError::NotAllowed);
        };
        if !query.is_empty() {
            return Err(FetchError::NotAllowed);
        }
        let Bounds { bytes, entries, pace, .. } = bounds;
        let (path, known) = (path.clone(), known.cloned());
        let find = move |root: &Dir, abandoned: &CancellationToken| {
            let find = read::Find { root, known: known.as_ref(), bytes, entries, abandoned };
            if path.is_directory { find.directory(joined(&path)) } else { find.file(joined(&path)) }
        };
        let Some(found) = self.run(find).await? else { return Ok(Fetched::Unchanged) };
        // No thread waits.
        if let Some(pace) = pace {
            pace.reserve(found.bytes()).await;
        }
        self.run_without_root(move |abandoned| found.read(abandoned)).await
    }
}

impl Source for Folder {
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(self.fetch(location, known, bounds))
    }

    fn scan<'a>(
        &'a self,
        tree: &'a Tree,
        include: &'a (dyn Fn(&str) -> bool + Send + Sync),
        _since: Option<Instant>,
        _pace: Option<&'a Arc<Pace>>,
    ) -> BoxStream<'a, Result<Vec<Entry>, FetchError>> {
        scan::scan(self, tree, include)
    }

    fn watch(&self, tree: &Tree) -> Option<BoxStream<'static, ChangeHint>> {
        let (root, context) = (self.root.clone(), Arc::clone(&self.context));
        Some(watch::watch(Arc::clone(&self.watches), root, context, tree.path.clone()))
    }
}

/// The opened root, and its path without symbolic links.
fn open_root(root: &std::path::Path, context: &SourceContext) -> Result<(Dir, PathBuf), FetchError> {
    let path = paths::resolve_own(root, context)?;
    let mut roots = context.file_roots.iter().filter_map(|root| root.canonicalize().ok());
    let base = roots.find(|base| path.starts_with(base)).ok_or(FetchError::NotAllowed)?;
    let within = path.strip_prefix(&base).ok().filter(|within| !within.as_os_str().is_empty());
    // What becomes a link after it was resolved does not lead out of the process's root either.
    let opened = Dir::open_ambient_dir(&base, ambient_authority());
    let opened = opened.and_then(|dir| dir.open_dir(within.unwrap_or(".".as_ref())));
    match opened.map_err(|error| failure(&error)) {
        Ok(dir) => Ok((dir, path)),
        Err(FetchError::NotFound) => Err(FetchError::Unreachable),
        Err(error) => Err(error),
    }
}

/// A path as the system has it, relative to the root.
fn joined(path: &Path) -> String {
    let segments: Vec<_> = path.segments.iter().map(Segment::as_str).collect();
    if segments.is_empty() { ".".into() } else { segments.join("/") }
}

/// The error of the file system.
fn failure(error: &io::Error) -> FetchError {
    match Errno::from_io_error(error) {
        Some(
            Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO,
        ) => FetchError::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => FetchError::Denied,
        // Not the system's: a path that leads out of the root.
        None if error.kind() == io::ErrorKind::PermissionDenied => FetchError::NotAllowed,
        _ => FetchError::Unreachable,
    }
}

/// What an operation on one name of a directory found. `None` if it was removed or replaced since, was never readable, or
/// leads out of the root: the others are listed without it. Any other error says nothing of the name.
fn listed<T>(result: io::Result<T>) -> Result<Option<T>, FetchError> {
    match result.map_err(|error| failure(&error)) {
        Ok(found) => Ok(Some(found)),
        Err(FetchError::NotFound | FetchError::Denied | FetchError::NotAllowed) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
