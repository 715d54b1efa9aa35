//! Notifications of the file system, collected for a moment.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RemoveKind};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::{joined, open_root};
use crate::kind::Environment;
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
    Watching(Arc<Collected>, RecommendedWatcher),
    /// Could not watch.
    Waiting,
    /// Its caller opens it again, which begins with everything.
    Ended,
}

pub(super) fn watch(
    root: PathBuf,
    environment: Arc<Environment>,
    tree: Path,
) -> BoxStream<'static, ChangeHint> {
    let start = (State::Start, Arc::new((root, environment, tree)));
    let batches = stream::unfold(start, |(state, place)| async move {
        match state {
            State::Start => {
                let opened = Arc::clone(&place);
                // Adds a watch for each directory, which takes a while.
                let watching = tokio::task::spawn_blocking(move || {
                    let (root, environment, tree) = &*opened;
                    begin(root, environment, tree)
                });
                // The first hint comes when notifications do: what changes from then on is not missed.
                let next = match watching.await {
                    Ok(Some((collected, watcher))) => State::Watching(collected, watcher),
                    _ => State::Waiting,
                };
                Some((vec![ChangeHint::Everything], (next, place)))
            }
            State::Watching(collected, watcher) => {
                collected.arrived.notified().await;
                tokio::time::sleep(COLLECTED).await;
                let hints = collected.take();
                let next = if hints.ended { State::Ended } else { State::Watching(collected, watcher) };
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
    root: &FilePath,
    environment: &Environment,
    tree: &Path,
) -> Option<(Arc<Collected>, RecommendedWatcher)> {
    let (dir, root) = open_root(root, environment).ok()?;
    let at = joined(tree);
    // The path without links, so that the watch is below the root as what is opened is.
    let place = root.join(dir.canonicalize(&at).ok()?);
    let collected = Arc::new(Collected::default());
    let notified = {
        let (collected, place) = (Arc::clone(&collected), place.clone());
        move |event: notify::Result<Event>| collected.add(event.ok(), &root, &place)
    };
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(notified, config).ok()?;
    watcher.watch(&place, RecursiveMode::Recursive).ok()?;
    Some((collected, watcher))
}

impl Collected {
    /// Adds what an event says; one that is missing is an error of the watch.
    pub(super) fn add(&self, event: Option<Event>, root: &FilePath, watched: &FilePath) {
        if event.as_ref().is_some_and(|event| !event.need_rescan() && !is_change(event.kind)) {
            return;
        }
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Some(event) if !event.need_rescan() => {
                let gone =
                    matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
                hints.ended |= gone && event.paths.iter().any(|path| path == watched);
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
        std::mem::take(&mut self.hints.lock().unwrap_or_else(PoisonError::into_inner))
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
