//! Notifications of a connection that its content may have changed.

use std::sync::Arc;
use std::time::Duration;

use content_source::{ChangeHint, Kind, Path};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep_until};

use crate::catalog::Catalog;
use crate::model::caller::Payer;
use crate::model::ids::ConnectionId;
use crate::model::scope::Revision;

/// A stream of files that has lasted for so long reports changes: one that cannot ends sooner.
const PROVEN_AFTER: Duration = Duration::from_secs(40);
/// After what time a stream that has reported changes is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// After what time one is opened again that has not.
const RETRY: Duration = Duration::from_secs(30);

/// The notifications of a connection.
pub(super) struct Hints {
    connection: ConnectionId,
    stream: Option<BoxStream<'static, ChangeHint>>,
    /// What is watched, once it is known: the kind and revision of the connection, the directory, and who pays.
    of: Option<((Kind, Revision), Path, Payer)>,
    /// When it was opened, or will be.
    opens: Instant,
    /// Whether it has reported changes.
    is_proven: bool,
}

impl Hints {
    pub(super) fn new(connection: ConnectionId) -> Self {
        Self { connection, stream: None, of: None, opens: Instant::now(), is_proven: false }
    }

    /// Watches a path, too, of this kind and revision of the connection.
    pub(super) fn include(&mut self, source: (Kind, Revision), path: Option<&Path>, payer: Payer) {
        if !matches!(source.0, Kind::File | Kind::Sql) {
            return;
        }
        let path = directory(path);
        let tree = match &self.of {
            Some((known, tree, _)) if *known == source => common(tree, &path),
            _ => path,
        };
        if self.of.as_ref().is_some_and(|(known, before, _)| *known == source && *before == tree) {
            return;
        }
        self.of = Some((source, tree, payer));
        (self.stream, self.opens, self.is_proven) = (None, Instant::now(), false);
    }

    /// Whether changes are reported, so that content need not be polled.
    pub(super) fn are_reliable(&self) -> bool {
        self.stream.is_some() && (self.is_proven || self.opens.elapsed() >= PROVEN_AFTER)
    }

    /// The next notification. Cancel-safe.
    pub(super) async fn next(&mut self, catalog: &Arc<Catalog>) -> ChangeHint {
        loop {
            if let Some(stream) = &mut self.stream {
                if let Some(hint) = stream.next().await {
                    let kind = self.of.as_ref().map(|((kind, _), ..)| *kind);
                    // A database reports nothing before it listens.
                    self.is_proven |= kind == Some(Kind::Sql) || matches!(hint, ChangeHint::Path(_));
                    return hint;
                }
                let was_reliable = self.are_reliable();
                let again = if was_reliable { AGAIN } else { RETRY };
                (self.stream, self.is_proven, self.opens) = (None, false, Instant::now() + again);
                if was_reliable {
                    return ChangeHint::Everything;
                }
                continue;
            }
            let Some((_, tree, payer)) = &self.of else { return std::future::pending().await };
            sleep_until(self.opens).await;
            let opened = catalog.fetcher.hints(*payer, self.connection, tree.clone()).await;
            (self.stream, self.opens) = match opened {
                Ok(Some(stream)) => (Some(stream), Instant::now()),
                Ok(None) | Err(_) => (None, Instant::now() + RETRY),
            };
        }
    }
}

/// The directory that a path is in.
fn directory(path: Option<&Path>) -> Path {
    let mut segments = path.map(|path| path.segments.clone()).unwrap_or_default();
    if path.is_some_and(|path| !path.is_directory) {
        segments.pop();
    }
    Path { segments, is_directory: true }
}

/// The directory that two directories are in.
fn common(one: &Path, other: &Path) -> Path {
    let both = one.segments.iter().zip(&other.segments).take_while(|(one, other)| one == other);
    Path { segments: both.map(|(one, _)| one.clone()).collect(), is_directory: true }
}

#[cfg(test)]
mod tests {
    use content_source::{Path, Segment};

    use super::{common, directory};

    fn path(text: &str) -> Path {
        let segments = text.split('/').filter_map(Segment::new).collect();
        Path { segments, is_directory: text.is_empty() || text.ends_with('/') }
    }

    #[test]
    fn directory_that_contains_all_paths_is_watched() {
        let of = |text: &str| directory(Some(&path(text)));
        assert_eq!(
            (of("a/b.md"), of("a/b/"), of("c"), directory(None)),
            (path("a/"), path("a/b/"), path(""), path(""))
        );
        assert_eq!(common(&path("a/b/"), &path("a/c/d/")), path("a/"));
        assert_eq!(common(&path("a/b/"), &path("a/b/")), path("a/b/"));
        assert_eq!(common(&path("a/"), &path("b/")), path(""));
    }
}
