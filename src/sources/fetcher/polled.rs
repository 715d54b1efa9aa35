//! Looks at content that is watched.

use std::sync::Arc;
use std::time::Duration;

use content_source::{ChangeHint, Content, FetchError, Kind, Path, Tree, Validator};
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use super::{ContentError, ContentRequest, Fetcher, Inner, Kept, Key};
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::ConnectionId;
use crate::model::scope::Revision;
use crate::sources::cause::FetchCause;

/// Content from outside as it is now.
#[derive(Debug)]
pub struct Polled {
    /// The contents; `None` if the source has no such content.
    pub contents: Option<Arc<[Content]>>,
    /// What it was fetched from, and at which revision of the connection.
    pub source: (Kind, Revision),
    /// How often content of the connection is polled.
    pub every: Duration,
    /// For how long it is answered from when it was fetched.
    pub ttl: Duration,
    key: Key,
    kept: Arc<Kept>,
}

impl Polled {
    /// What it is revalidated with.
    pub fn validator(&self) -> Option<&Validator> {
        self.kept.validator.as_ref()
    }

    /// When it was fetched or revalidated.
    pub fn fetched(&self) -> Instant {
        self.kept.checked
    }
}

impl Fetcher {
    /// Content from outside as it is now, within the part of the connection's limits that polls have. What it is fetched for is
    /// in memory after it. `is_known` is whether the source has answered for it before.
    ///
    /// # Errors
    /// [`ContentError::Fault`].
    pub async fn poll(&self, wanted: ContentRequest, is_known: bool) -> Result<Polled, ContentError> {
        let inner = &self.inner;
        let found =
            inner.connections.get(wanted.payer, wanted.connection).await.map_err(ContentError::Fault)?;
        let connection = found.ok_or(FetchError::NotAllowed)?;
        connection.source(wanted.tenant)?;
        let key = Key::new(&connection, &wanted);
        inner.gates.admit_poll(
            (key.connection, key.connection_revision),
            &connection.limits,
            wanted.tenant,
        )?;
        let (known, began) = (inner.kept.peek(&key), Instant::now());
        // A repository is asked once in a round what its reference names.
        let is_shared = connection.kind == Kind::Git;
        let since = is_shared.then(|| self.round(key.connection, connection.limits.poll()).began);
        let wanted_by = (key.clone(), FetchCause::Poll { is_known });
        let mut kept = Inner::flight(inner, wanted_by.clone(), &connection, (known, None), since).await?;
        // A fetch that was in progress may have read what changed since.
        if kept.checked < since.unwrap_or(began) {
            kept = Inner::flight(inner, wanted_by, &connection, (Some(kept), None), since).await?;
        }
        let (contents, ttl) = (kept.contents.clone(), inner.ages(&wanted).ttl);
        let source = (connection.kind, connection.revision);
        Ok(Polled { contents, source, every: connection.limits.poll(), ttl, key, kept })
    }

    /// Keeps content that was found as that of the revision that made it known.
    pub fn carry(&self, Polled { key, kept, .. }: Polled, revision: Revision) {
        self.inner.keep(&Key { revision, ..key }, &kept);
    }

    /// Notifications of a connection that content below a path may have changed; `None` if it has none, or cannot be used.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`].
    pub async fn hints(
        &self,
        payer: Payer,
        connection: ConnectionId,
        below: Path,
    ) -> Result<Option<BoxStream<'static, ChangeHint>>, Fault> {
        let found = self.inner.connections.get(payer, connection).await?;
        let tree = Tree { path: below, reference: None };
        Ok(found.and_then(|connection| connection.enabled_source().ok()?.watch(&tree)))
    }
}
