//! What asks a source without keeping an answer: a fetch that tests a connection, and the check of a location.

use std::sync::Arc;

use content_source::{FetchError, Fetched, Location};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{ContentError, Fetcher, Inner};
use crate::model::caller::Payer;
use crate::model::ids::{ConnectionId, TenantId};
use crate::sources::Connection;
use crate::sources::cause::FetchCause;

/// The operator has the limits of a connection for itself, as each tenant has.
const OPERATOR: TenantId = TenantId(Uuid::nil());

impl Fetcher {
    /// Fetches a location as a read would, within the limits of the connection, and keeps nothing. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn probe(&self, connection: &Arc<Connection>, location: Location) -> Result<u64, FetchError> {
        let (inner, connection) = (Arc::clone(&self.inner), Arc::clone(connection));
        let probing = self.runtime().spawn(async move { inner.probe(&connection, &location).await });
        let probing = timeout(self.inner.options.longest_wait, AbortOnDropHandle::new(probing));
        probing.await.map_or(Err(FetchError::Timeout), |done| done.unwrap_or(Err(FetchError::Unreachable)))
    }

    /// Whether a tenant's definition can have a location, as far as its source tells without fetching it. One that does not
    /// tell, because it is unreachable, disabled, or at its limits, refuses nothing.
    ///
    /// # Errors
    /// [`ContentError`].
    pub async fn check(
        &self,
        tenant: TenantId,
        uid: ConnectionId,
        location: &Location,
    ) -> Result<(), ContentError> {
        let found =
            self.inner.connections.get(Payer::Tenant(tenant), uid).await.map_err(ContentError::Fault)?;
        let Some(connection) = found else { return Ok(()) };
        let Connection { limits, revision, .. } = &*connection;
        let Ok(source) = connection.source(tenant) else { return Ok(()) };
        let deadline = Instant::now() + limits.timeout().min(self.inner.options.longest_wait);
        let permit =
            self.inner.gates.pass((uid, *revision), limits, (tenant, FetchCause::Tenant), deadline).await;
        let Ok(permit) = permit else { return Ok(()) };
        if permit.admit().is_err() {
            return Ok(());
        }
        let checked = timeout_at(deadline, source.check(location)).await.unwrap_or(Err(FetchError::Timeout));
        // What a database answers to a statement says nothing of the database.
        let is_reached = !matches!(checked, Err(FetchError::Unreachable | FetchError::Timeout));
        permit.record(&if is_reached { Ok(()) } else { checked });
        match checked {
            Ok(()) | Err(FetchError::Unreachable | FetchError::Timeout | FetchError::Busy) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Inner {
    async fn probe(&self, connection: &Connection, location: &Location) -> Result<u64, FetchError> {
        let Connection { limits, uid, revision, .. } = connection;
        let source = connection.enabled_source()?;
        let deadline = Instant::now() + limits.timeout();
        let permit =
            self.gates.pass((*uid, *revision), limits, (OPERATOR, FetchCause::Tenant), deadline).await?;
        permit.admit()?;
        let (fetched, _) = permit.fetch(&**source, (location, None), (limits, None), deadline).await;
        match fetched? {
            Fetched::Contents { contents, .. } => {
                Ok(contents.iter().map(|content| content.bytes.len() as u64).sum())
            }
            // Nothing was known that it could be compared with.
            Fetched::Unchanged => Err(FetchError::BadContent),
        }
    }
}
