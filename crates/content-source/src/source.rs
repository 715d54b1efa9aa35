//! The trait of all sources.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use time::OffsetDateTime;

use crate::error::FetchError;
use crate::location::{Location, Path};
use crate::pace::Pace;

/// What proves that content is unchanged: an entity tag, a size and a time, a commit. Opaque outside its source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Validator(pub Vec<u8>);

/// How much a call may read.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'p> {
    /// The maximum number of bytes of all contents together, after decompression. Each row of a statement but the first
    /// counts 8 bytes more.
    pub bytes: u64,
    /// The maximum number of files of a directory.
    pub entries: usize,
    /// What the source answered another call since then need not be asked again: the commit that a reference names.
    /// `None` for everything.
    pub since: Option<Instant>,
    /// How fast bytes are received, and decoded ones produced; `None` for any rate.
    pub pace: Option<&'p Arc<Pace>>,
}

/// One content of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The name of the file in its directory; `None` for the place itself.
    pub name: Option<String>,
    /// The MIME type that the source states, if any.
    pub mime_type: Option<String>,
    /// When the source changed it, if it tells.
    pub modified: Option<OffsetDateTime>,
    /// The decoded bytes.
    pub bytes: Bytes,
}

/// The answer of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The content is what the validator was given with.
    Unchanged,
    /// The contents: one for a file, one for each regular file directly in a directory, in byte order of names.
    Contents {
        /// The contents.
        contents: Vec<Content>,
        /// What a later call may revalidate them with.
        validator: Option<Validator>,
    },
}

/// A tree to be scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its directory.
    pub path: Path,
    /// The branch, tag or commit of a git repository, in place of the connection's.
    pub reference: Option<String>,
}

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path relative to the tree, with `/` between segments, not percent-encoded.
    pub path: String,
    /// The size in bytes, if known.
    pub size: Option<u64>,
    /// When it changed, if known.
    pub modified: Option<OffsetDateTime>,
    /// Differs when the content differs.
    pub validator: Validator,
}

/// What a notification of a source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeHint {
    /// Something at or below this path may have changed.
    Path(Path),
    /// Anything may have changed, such as when notifications were lost.
    Everything,
}

/// A connection to content elsewhere.
pub trait Source: fmt::Debug + Send + Sync {
    /// Fetches the content of a location, or revalidates content that was fetched with a validator.
    ///
    /// # Errors
    /// See [`FetchError`].
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>>;

    /// The regular files of a tree, in batches and in any order. `include` decides which directories are entered and which
    /// files are listed, by the path relative to the tree (a directory's ends in `/`); it is called for each name that is
    /// looked at, and a batch of which nothing is listed is empty. `since` and `pace` are those of [`Bounds`].
    ///
    /// The stream is lazy, and ends after an error. A source that has no trees answers [`FetchError::NotAllowed`].
    fn scan<'a>(
        &'a self,
        _tree: &'a Tree,
        _include: &'a (dyn Fn(&str) -> bool + Send + Sync),
        _since: Option<Instant>,
        _pace: Option<&'a Arc<Pace>>,
    ) -> BoxStream<'a, Result<Vec<Entry>, FetchError>> {
        Box::pin(stream::once(std::future::ready(Err(FetchError::NotAllowed))))
    }

    /// Notifications that content may have changed, from the first poll on, in addition to polling; `None` for a source that
    /// has none. The first item is [`ChangeHint::Everything`]. A stream that ends is opened again by its caller.
    fn watch(&self, _tree: &Tree) -> Option<BoxStream<'static, ChangeHint>> {
        None
    }

    /// Whether a location can be fetched, as far as the source tells without fetching it: a database prepares a statement.
    ///
    /// # Errors
    /// [`FetchError::Unreachable`] and [`FetchError::Timeout`] if it cannot be found out, for any reason; all others are
    /// about the location.
    fn check<'a>(&'a self, _location: &'a Location) -> BoxFuture<'a, Result<(), FetchError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
