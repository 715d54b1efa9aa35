//! Notifications of the file system, collected for a moment.
//!
//! A system has few instances of what notifies (128 of a user by default), so that all trees of a connection share one.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RemoveKind};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::{joined, open_root};
use crate::kind::SourceContext;
use crate::location::{Path, Segment};
use crate::source::ChangeHint;

/// How long notifications are collected after the first: a file that is written is notified many times.
const COLLECTED: Duration = Duration::from_millis(100);

/// How many paths are collected before they become [`ChangeHint::Everything`].
const MAX_PATHS: usize = 1000;

/// How long a tree that cannot be watched, such as one that does not exist, is left alone.
const RETRY: Duration = Duration::from_secs(30);

/// What was notified since it was last taken.
#[derive(Default)]
pub(super) struct Collected {
    hints: Mutex<Hints>,
    arrived: Notify,
}

#[derive(Default)]
pub(super) struct Hints {
    everything: bool,
    /// The watch itself is over: the directory was removed or moved away.
    ended: bool,
    paths: BTreeSet<Path>,
}

/// What the stream does next.
enum State {
    Start,
    /// Watches as long as this is kept.
    Watching(Arc<Collected>, Arc<Watched>),
    /// Could not watch.
    Waiting,
    /// Its caller opens it again, which begins with everything.
    Ended,
}

/// The last directory of a connection that is watched, while it is.
#[derive(Default)]
pub(super) struct Watches(Mutex<Weak<Watched>>);

/// A directory that is watched with those below it, for all whose trees are in it.
struct Watched {
    root: PathBuf,
    place: PathBuf,
    readers: Arc<Readers>,
    /// Ends with it.
    _watcher: RecommendedWatcher,
}

/// Whom a notification may concern.
#[derive(Default)]
struct Readers {
    by_place: Mutex<Vec<(PathBuf, Weak<Collected>)>>,
    /// Whether the directory was removed or moved away.
    is_over: AtomicBool,
}

pub(super) fn watch(
    watches: Arc<Watches>,
    root: PathBuf,
    context: Arc<SourceContext>,
    tree: Path,
) -> BoxStream<'static, ChangeHint> {
    let start = (State::Start, Arc::new((watches, root, context, tree)));
    let batches = stream::unfold(start, |(state, place)| async move {
        match state {
            State::Start => {
                let opened = Arc::clone(&place);
                // Adds a watch for each directory, which takes a while.
                let watching = tokio::task::spawn_blocking(move || {
                    let (watches, root, context, tree) = &*opened;
                    begin(watches, root, context, tree)
                });
                // The first hint comes when notifications do: what changes from then on is not missed.
                let next = match watching.await {
                    Ok(Some((collected, shared))) => State::Watching(collected, shared),
                    _ => State::Waiting,
                };
                Some((vec![ChangeHint::Everything], (next, place)))
            }
            State::Watching(collected, shared) => {
                collected.arrived.notified().await;
                tokio::time::sleep(COLLECTED).await;
                let hints = collected.take();
                let next = if hints.ended { State::Ended } else { State::Watching(collected, shared) };
                Some((hints.into_hints(), (next, place)))
            }
            State::Waiting => {
                tokio::time::sleep(RETRY).await;
                None
            }
            State::Ended => None,
        }
    });
    batches.flat_map(stream::iter).boxed()
}

/// Watches the directory of a tree, and those below it.
fn begin(
    watches: &Watches,
    root: &FilePath,
    context: &SourceContext,
    tree: &Path,
) -> Option<(Arc<Collected>, Arc<Watched>)> {
    let (dir, root) = open_root(root, context).ok()?;
    let at = joined(tree);
    // The path without links, so that the watch is below the root as what is opened is.
    let place = root.join(dir.canonicalize(&at).ok()?);
    let mut last = locked(&watches.0);
    let known = last.upgrade().filter(|known| known.root == root && !known.readers.is_over());
    let shared = match known {
        Some(known) if place.starts_with(&known.place) => known,
        // A wider one, which has room for both: there are no more than a path has directories.
        Some(known) => Watched::begin(&root, common(&known.place, &place))
            .or_else(|| Watched::begin(&root, place.clone()))?,
        None => Watched::begin(&root, place.clone())?,
    };
    *last = Arc::downgrade(&shared);
    Some((shared.readers.add(place), shared))
}

impl Watched {
    fn begin(root: &FilePath, place: PathBuf) -> Option<Arc<Self>> {
        let readers = Arc::new(Readers::default());
        let notified = {
            let (readers, root, place) = (Arc::clone(&readers), root.to_owned(), place.clone());
            move |event: notify::Result<Event>| readers.notify(event.ok().as_ref(), &root, &place)
        };
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(notified, config).ok()?;
        watcher.watch(&place, RecursiveMode::Recursive).ok()?;
        Some(Arc::new(Self { root: root.to_owned(), place, readers, _watcher: watcher }))
    }
}

impl Readers {
    /// Adds one whose tree is at a place.
    fn add(&self, place: PathBuf) -> Arc<Collected> {
        let collected = Arc::new(Collected::default());
        let mut by_place = locked(&self.by_place);
        by_place.retain(|(_, reader)| reader.strong_count() > 0);
        by_place.push((place, Arc::downgrade(&collected)));
        collected
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Tells each of what concerns its place; of an error of the watch, all.
    fn notify(&self, event: Option<&Event>, root: &FilePath, watched: &FilePath) {
        if event.is_some_and(|event| is_gone(event, watched)) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        for (place, reader) in &*locked(&self.by_place) {
            let concerns = |event: &Event| {
                let is_within = event.paths.iter().any(|path| path.starts_with(place));
                is_within || event.need_rescan() || is_gone(event, place)
            };
            if event.is_none_or(concerns)
                && let Some(reader) = reader.upgrade()
            {
                reader.add(event.cloned(), root, place);
            }
        }
    }
}

/// Whether a directory, or one that it is in, was removed or moved away.
fn is_gone(event: &Event, directory: &FilePath) -> bool {
    matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
        && event.paths.iter().any(|path| directory.starts_with(path))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory that two paths are in.
fn common(one: &FilePath, other: &FilePath) -> PathBuf {
    one.components()
        .zip(other.components())
        .take_while(|(one, other)| one == other)
        .map(|(one, _)| one)
        .collect()
}

impl Collected {
    /// Adds what an event says; one that is missing is an error of the watch.
    pub(super) fn add(&self, event: Option<Event>, root: &FilePath, watched: &FilePath) {
        if event.as_ref().is_some_and(|event| !event.need_rescan() && !is_change(event.kind)) {
            return;
        }
        let mut hints = locked(&self.hints);
        match event {
            Some(event) if !event.need_rescan() => {
                hints.ended |= is_gone(&event, watched);
                let is_directory = is_directory(event.kind);
                for path in &event.paths {
                    hints.add(relative(path, root, is_directory));
                }
            }
            _ => hints.everything = true,
        }
        self.arrived.notify_one();
    }

    pub(super) fn take(&self) -> Hints {
        std::mem::take(&mut *locked(&self.hints))
    }
}

impl Hints {
    fn add(&mut self, path: Option<Path>) {
        match path {
            Some(path) if self.paths.len() < MAX_PATHS => {
                self.paths.insert(path);
            }
            _ => self.everything = true,
        }
    }

    pub(super) fn into_hints(self) -> Vec<ChangeHint> {
        if self.everything || self.ended {
            return vec![ChangeHint::Everything];
        }
        self.paths.into_iter().map(ChangeHint::Path).collect()
    }
}

/// Whether an event may mean that content differs. Reading causes events too.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn is_directory(kind: EventKind) -> bool {
    matches!(kind, EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder))
}

/// The path relative to the root; of a name that no location can have, that of its directory.
fn relative(path: &FilePath, root: &FilePath, is_directory: bool) -> Option<Path> {
    let mut segments = Vec::new();
    for component in path.strip_prefix(root).ok()?.components() {
        let Some(segment) = component.as_os_str().to_str().and_then(Segment::new) else {
            return Some(Path { segments, is_directory: true });
        };
        segments.push(segment);
    }
    let is_directory = is_directory || segments.is_empty();
    Some(Path { segments, is_directory })
}
