//! Reads the trees and blobs of a commit.

use std::path::{Path as FilePath, PathBuf};

use bytes::Bytes;
use gix::object::Kind;
use gix::objs::tree::EntryKind;
use gix::{ObjectId, Repository, ThreadSafeRepository};

use super::Reference;
use super::cache::Lease;
use crate::error::FetchError;
use crate::kind::SourceContext;
use crate::location::{Path, Segment};
use crate::paths;
use crate::source::{Content, Entry, Fetched, Validator};

/// No configuration of the host, no environment, no includes; objects of at most 64 MiB, which a small pack could unfold to
/// far more.
pub(super) fn options() -> gix::open::Options {
    gix::open::Options::isolated().open_path_as_is(true).config_overrides([
        "gitoxide.objects.allocLimit=67108864",
        "pack.threads=1",
        "protocol.version=2",
    ])
}

/// A commit of an open repository.
pub(super) struct Commit {
    repository: ThreadSafeRepository,
    root: ObjectId,
    /// Keeps the clone from being removed.
    _lease: Option<Lease>,
}

/// What is at a path.
pub(super) enum Found {
    /// What is known.
    Unchanged,
    Files(Files),
}

/// Files that are to be read.
pub(super) struct Files {
    /// Each with its name, if it is one of a directory.
    named: Vec<(Option<String>, ObjectId)>,
    /// Their size.
    pub(super) bytes: u64,
    validator: Validator,
}

/// An entry of a directory.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) id: ObjectId,
    pub(super) is_directory: bool,
}

impl Commit {
    /// A commit of a repository that has it.
    pub(super) fn new(
        repository: Repository,
        id: ObjectId,
        lease: Option<Lease>,
    ) -> Result<Self, FetchError> {
        let commit = repository.find_object(id).and_then(|object| object.peel_to_kind(Kind::Commit));
        let commit = commit.map_err(|error| missing(&error))?;
        let root = commit.into_commit().tree_id().map_err(|_| FetchError::BadContent)?.detach();
        Ok(Self { repository: repository.into_sync(), root, _lease: lease })
    }

    /// The commit that a reference names in a repository below a root.
    pub(super) fn open_in_place(
        path: &FilePath,
        context: &SourceContext,
        reference: &Reference,
    ) -> Result<Self, FetchError> {
        let path = paths::resolve_own(path, context)?;
        let inner = path.join(".git");
        let path = if inner.is_dir() { paths::resolve_own(&inner, context)? } else { path };
        let repository = gix::open_opts(path, options()).map_err(|error| match missing(&error) {
            FetchError::NotFound => FetchError::Unreachable,
            error => error,
        })?;
        // A repository may say that its parts are elsewhere.
        let objects = repository.objects.store_ref().path().to_owned();
        for part in [repository.git_dir().to_owned(), repository.common_dir().to_owned(), objects.clone()] {
            paths::resolve_own(&part, context)?;
        }
        if objects.join("info/alternates").exists() {
            return Err(FetchError::NotAllowed);
        }
        let id = match reference {
            Reference::Commit(id) => *id,
            Reference::Head | Reference::Name(_) => {
                let find = |name: String| repository.try_find_reference(name.as_str()).transpose();
                let found = reference.candidates().into_iter().find_map(find).ok_or(FetchError::NotFound)?;
                let mut found = found.map_err(|error| failure(&error))?;
                // A branch without a commit is a reference to none. What a reference names must be there.
                found.follow_to_object().map_err(|error| missing(&error))?;
                found.into_fully_peeled_id().map_err(|error| failure(&error))?.detach()
            }
        };
        Self::new(repository.clone(), id, None).map_err(|error| match reference {
            Reference::Head | Reference::Name(_) if error == FetchError::NotFound => FetchError::BadContent,
            _ => error,
        })
    }

    /// The kind and id of what is at a path.
    fn find(
        &self,
        repository: &Repository,
        segments: &[Segment],
    ) -> Result<(EntryKind, ObjectId), FetchError> {
        let mut found = (EntryKind::Tree, self.root);
        for segment in segments {
            if found.0 != EntryKind::Tree {
                return Err(FetchError::NotFound);
            }
            let tree = repository.find_tree(found.1).map_err(|error| failure(&error))?;
            let entry = tree.find_entry(segment.as_str()).ok_or(FetchError::NotFound)?;
            found = (entry.mode().kind(), entry.object_id());
        }
        Ok(found)
    }

    /// The tree of a directory.
    pub(super) fn directory(&self, path: &Path) -> Result<ObjectId, FetchError> {
        match self.find(&self.repository.to_thread_local(), &path.segments)? {
            (EntryKind::Tree, id) => Ok(id),
            _ => Err(FetchError::NotFound),
        }
    }

    /// The file or the files of the directory at a path, within bounds.
    pub(super) fn find_files(
        &self,
        path: &Path,
        known: Option<&Validator>,
        bytes: u64,
        entries: usize,
    ) -> Result<Found, FetchError> {
        let repository = self.repository.to_thread_local();
        let (kind, id) = self.find(&repository, &path.segments)?;
        let is_directory = match kind {
            EntryKind::Tree => true,
            EntryKind::Blob | EntryKind::BlobExecutable => false,
            EntryKind::Link | EntryKind::Commit => return Err(FetchError::NotFound),
        };
        if is_directory != path.is_directory {
            return Err(FetchError::NotFound);
        }
        let validator = Validator(id.as_bytes().to_vec());
        if known == Some(&validator) {
            return Ok(Found::Unchanged);
        }
        let files: Vec<_> = if is_directory {
            let files = self.list(id, entries)?.into_iter().filter(|entry| !entry.is_directory);
            files.map(|entry| (Some(entry.name), entry.id)).collect()
        } else {
            vec![(None, id)]
        };
        let mut total = 0_u64;
        for (_, id) in &files {
            let size = repository.find_header(*id).map_err(|error| failure(&error))?.size();
            total = total.saturating_add(size);
            if total > bytes {
                return Err(FetchError::TooLarge);
            }
        }
        Ok(Found::Files(Files { named: files, bytes: total, validator }))
    }

    /// Reads files.
    pub(super) fn read(&self, Files { named: files, validator, .. }: Files) -> Result<Fetched, FetchError> {
        let repository = self.repository.to_thread_local();
        let mut contents = Vec::with_capacity(files.len());
        for (name, id) in files {
            let bytes = Bytes::from(repository.find_blob(id).map_err(|error| failure(&error))?.take_data());
            contents.push(Content { name, mime_type: None, modified: None, bytes });
        }
        Ok(Fetched::Contents { contents, validator: Some(validator) })
    }

    /// The files and directories directly in a directory, in byte order. Names that are no text are left out, as are
    /// symbolic links and submodules. With more files than `most_files` it is too large: a tree of 64 MiB has two million.
    pub(super) fn list(&self, directory: ObjectId, most_files: usize) -> Result<Vec<Listed>, FetchError> {
        let repository = self.repository.to_thread_local();
        let tree = repository.find_tree(directory).map_err(|error| failure(&error))?;
        let (mut listed, mut files) = (Vec::new(), 0);
        for entry in tree.iter() {
            let entry = entry.map_err(|_| FetchError::BadContent)?;
            let is_directory = match entry.mode().kind() {
                EntryKind::Tree => true,
                EntryKind::Blob | EntryKind::BlobExecutable => false,
                EntryKind::Link | EntryKind::Commit => continue,
            };
            let name = std::str::from_utf8(entry.filename()).ok().and_then(Segment::new);
            if let Some(name) = name {
                files += usize::from(!is_directory);
                if files > most_files {
                    return Err(FetchError::TooLarge);
                }
                listed.push(Listed { name: name.as_str().to_owned(), id: entry.object_id(), is_directory });
            }
        }
        Ok(listed)
    }

    /// Files of a tree, with their sizes.
    pub(super) fn entries(&self, files: Vec<(String, ObjectId)>) -> Vec<Entry> {
        let repository = self.repository.to_thread_local();
        let entry = |(path, id): (String, ObjectId)| Entry {
            path,
            size: repository.find_header(id).ok().map(|header| header.size()),
            modified: None,
            validator: Validator(id.as_bytes().to_vec()),
        };
        files.into_iter().map(entry).collect()
    }
}

/// What an error of reading something that may not exist means.
fn missing(error: &gix::Error) -> FetchError {
    if error.is_not_found() { FetchError::NotFound } else { failure(error) }
}

/// What an error of reading an object means.
fn failure(error: &gix::Error) -> FetchError {
    if error.is_resource_exhausted() { FetchError::TooLarge } else { FetchError::BadContent }
}

/// The size in bytes of the files below a directory.
pub(super) fn size(directory: &FilePath) -> u64 {
    let mut directories: Vec<PathBuf> = vec![directory.to_owned()];
    let mut total = 0_u64;
    while let Some(directory) = directories.pop() {
        // What vanishes meanwhile has no size.
        let Ok(entries) = directory.read_dir() else { continue };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => directories.push(entry.path()),
                Ok(found) => total = total.saturating_add(found.len()),
                Err(_) => {}
            }
        }
    }
    total
}
