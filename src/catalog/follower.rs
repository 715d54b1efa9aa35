//! Implements the port through which the change feed updates the catalog.

use super::Catalog;
use super::snapshot::view::View;
use crate::model::caller::Payer;
use crate::model::feed::{BoxFuture, Follower, Unconfirmed};
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::scope::{Change, Revision, Scope};

impl Follower for Catalog {
    fn raise(&self, scope: Scope, revision: Revision) -> bool {
        self.scopes.raise(scope, revision)
    }

    fn applied(&self, scope: Scope) -> Option<Revision> {
        self.scopes.applied(scope)
    }

    fn held(&self) -> Vec<(Scope, Revision)> {
        self.scopes.revisions()
    }

    fn forget_all(&self) {
        self.scopes.clear();
    }

    fn catch_up(&self, scope: Scope) -> BoxFuture<'_, ()> {
        Box::pin(self.scopes.catch_up(scope, &self.loader))
    }

    fn served<'a>(
        &'a self,
        tenant: TenantId,
        agent: AgentId,
        changes: &'a [Change],
        uris: &'a [ResourceUri],
    ) -> BoxFuture<'a, Result<Vec<(Revision, ResourceUri)>, Unconfirmed>> {
        Box::pin(async move {
            let snapshot =
                self.snapshot_of(Payer::Tenant(tenant), tenant, agent).await.map_err(|_| Unconfirmed)?;
            self.answered_anew(tenant, View::unfiltered(snapshot), changes, uris).await.ok_or(Unconfirmed)
        })
    }
}
