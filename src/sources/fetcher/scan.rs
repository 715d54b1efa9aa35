//! Admission of scans.

use std::sync::Arc;

use content_source::{FetchError, Pace};

use super::Fetcher;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::{ConnectionId, TenantId};
use crate::sources::Connection;

impl Fetcher {
    /// The connection of a mount, if the tenant may use it and its trees may be scanned now: within half of its rate. With it,
    /// how fast the bytes of the scan come.
    ///
    /// # Errors
    /// [`FetchError`]; the outer error is the database's.
    pub async fn admit_scan(
        &self,
        tenant: TenantId,
        connection: ConnectionId,
    ) -> Result<Result<(Arc<Connection>, Option<Arc<Pace>>), FetchError>, Fault> {
        let found = self.inner.connections.get(Payer::Tenant(tenant), connection).await?;
        let admitted = |connection: Arc<Connection>| {
            connection.source(tenant)?;
            let key = (connection.uid, connection.revision);
            let pace = self.inner.gates.admit_poll(key, &connection.limits, tenant)?;
            Ok((connection, pace))
        };
        Ok(found.ok_or(FetchError::NotAllowed).and_then(admitted))
    }
}
