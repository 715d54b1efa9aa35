//! Lists the regular files of a tree.
//!
//! A directory is read in batches, one directory at a time: between them the thread is given back, and the stream may be
//! dropped. Symbolic links to files are followed within the root; those to directories are not, so that a tree is finite.

use std::sync::Arc;

use cap_std::fs::{Dir, ReadDir};
use futures_util::stream::{self, BoxStream, StreamExt};

use super::read::{modified, stamp};
use super::{Folder, failure, joined, listed};
use crate::error::FetchError;
use crate::location::Segment;
use crate::paths::{MAX_DEPTH, MAX_PENDING};
use crate::source::{Entry, Tree};

/// How many names are read at a time.
const BATCH: usize = 1000;

/// The directories that are still to be read, by paths relative to the tree, each with a final `/`; the tree's own is empty.
struct Progress {
    pending: Vec<String>,
    reading: Option<Reading>,
}

/// A directory that is being read.
struct Reading {
    prefix: String,
    names: ReadDir,
}

/// A name of a directory.
enum Name {
    Directory(String),
    /// A file, or what a link leads to.
    Other(String),
}

pub(super) fn scan<'a>(
    folder: &'a Folder,
    tree: &'a Tree,
    include: &'a (dyn Fn(&str) -> bool + Send + Sync),
) -> BoxStream<'a, Result<Vec<Entry>, FetchError>> {
    let base: Arc<str> = joined(&tree.path).into();
    let progress = Progress { pending: vec![String::new()], reading: None };
    let entries = stream::try_unfold(progress, move |mut progress| {
        let base = Arc::clone(&base);
        async move {
            if tree.reference.is_some() {
                return Err(FetchError::NotAllowed);
            }
            let Some(reading) = next_directory(folder, &base, &mut progress).await? else { return Ok(None) };
            let prefix = reading.prefix.clone();
            let names = next_names(folder, reading, &mut progress).await?;
            let files = included(names, &prefix, include, &mut progress.pending)?;
            let entries = if files.is_empty() { Vec::new() } else { entries(folder, &base, files).await? };
            Ok(Some((entries, progress)))
        }
    });
    entries.boxed()
}

/// The directory that is being read, or the next one; `None` after the last.
async fn next_directory(
    folder: &Folder,
    base: &Arc<str>,
    progress: &mut Progress,
) -> Result<Option<Reading>, FetchError> {
    if let Some(reading) = progress.reading.take() {
        return Ok(Some(reading));
    }
    while let Some(prefix) = progress.pending.pop() {
        let path = format!("{base}/{prefix}");
        let opened = folder.run(move |root, _| root.read_dir(&path).map_err(|error| failure(&error))).await;
        match opened {
            Ok(names) => return Ok(Some(Reading { prefix, names })),
            // Removed or replaced since, or never readable: the rest of the tree is.
            Err(FetchError::NotFound | FetchError::Denied | FetchError::NotAllowed) if !prefix.is_empty() => {
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The next names of a directory, which is read on afterwards if there may be more.
async fn next_names(
    folder: &Folder,
    mut reading: Reading,
    progress: &mut Progress,
) -> Result<Vec<Name>, FetchError> {
    let (names, reading) = folder
        .run(move |_, _| {
            let mut names = Vec::new();
            let mut read = 0;
            for entry in reading.names.by_ref().take(BATCH) {
                read += 1;
                let entry = entry.map_err(|error| failure(&error))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                if Segment::new(&name).is_none() {
                    continue;
                }
                let Some(kind) = listed(entry.file_type())? else { continue };
                names.push(if kind.is_dir() { Name::Directory(name) } else { Name::Other(name) });
            }
            Ok((names, (read == BATCH).then_some(reading)))
        })
        .await?;
    progress.reading = reading;
    Ok(names)
}

/// The paths of files that are included; directories that are wait to be read.
fn included(
    names: Vec<Name>,
    prefix: &str,
    include: &(dyn Fn(&str) -> bool + Send + Sync),
    pending: &mut Vec<String>,
) -> Result<Vec<String>, FetchError> {
    let mut files = Vec::new();
    let is_deepest = prefix.matches('/').count() >= MAX_DEPTH;
    for name in names {
        match name {
            Name::Directory(name) => {
                let path = format!("{prefix}{name}/");
                if !is_deepest && include(&path) {
                    pending.push(path);
                }
            }
            Name::Other(name) => {
                let path = format!("{prefix}{name}");
                if include(&path) {
                    files.push(path);
                }
            }
        }
    }
    if pending.len() > MAX_PENDING { Err(FetchError::TooLarge) } else { Ok(files) }
}

/// The entries of those that are regular files.
async fn entries(folder: &Folder, base: &Arc<str>, files: Vec<String>) -> Result<Vec<Entry>, FetchError> {
    let base = Arc::clone(base);
    let entry = move |root: &Dir, path: String| {
        let metadata = listed(root.metadata(format!("{base}/{path}")))?;
        Ok(metadata.filter(cap_std::fs::Metadata::is_file).map(|metadata| {
            let (size, modified) = (Some(metadata.len()), modified(&metadata));
            Entry { path, size, modified, validator: stamp(&metadata) }
        }))
    };
    folder
        .run(move |root, _| files.into_iter().filter_map(|path| entry(root, path).transpose()).collect())
        .await
}
