//! Where a connection may name files, and how far trees are scanned.

use std::path::{Component, Path, PathBuf};

use crate::error::FetchError;
use crate::kind::SourceContext;

/// How deep directories of a tree may nest.
pub(crate) const MAX_DEPTH: usize = 64;

/// How many directories of a scan may wait to be read.
pub(crate) const MAX_PENDING: usize = 100_000;

/// Whether a path is an absolute one below a root, by its text. It need not exist.
pub(crate) fn is_below_root(path: &Path, context: &SourceContext) -> bool {
    let is_plain =
        path.components().all(|component| matches!(component, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && is_plain && context.file_roots.iter().any(|root| path.starts_with(root))
}

/// As [`resolve`], for the path of a connection itself: that it does not exist is a failure of the connection, and does not say
/// that there is no such content.
pub(crate) fn resolve_own(path: &Path, context: &SourceContext) -> Result<PathBuf, FetchError> {
    resolve(path, context).map_err(|error| match error {
        FetchError::NotFound => FetchError::Unreachable,
        error => error,
    })
}

/// The path without symbolic links, which must be below a root, be no denied path, and neither lie in one nor hold one.
pub(crate) fn resolve(path: &Path, context: &SourceContext) -> Result<PathBuf, FetchError> {
    let path = path.canonicalize().map_err(|_| FetchError::NotFound)?;
    let mut roots = context.file_roots.iter().filter_map(|root| root.canonicalize().ok());
    let mut denied = context.denied_paths.iter().filter_map(|denied| denied.canonicalize().ok());
    let is_allowed = roots.any(|root| path.starts_with(root))
        && !denied.any(|denied| path.starts_with(&denied) || denied.starts_with(&path));
    if is_allowed { Ok(path) } else { Err(FetchError::NotAllowed) }
}
