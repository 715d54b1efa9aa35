//! Implements the port through which the change feed updates the catalog.

use std::collections::HashSet;

use super::Catalog;
use crate::model::audience::Audience;
use crate::model::caller::Payer;
use crate::model::feed::{BoxFuture, Follower, ServedAnew};
use crate::model::ids::{AgentId, AgentRef, ResourceUri, TenantId};
use crate::model::label::CallerLabels;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::scope_changes::ScopeChanges;
use crate::model::tool::ToolSet;

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
        self.fetcher.forget_all();
    }

    fn catch_up(&self, scope: Scope) -> BoxFuture<'_, ()> {
        Box::pin(self.loader.catch_up(&self.scopes, scope))
    }

    fn apply_changes(&self, agent: AgentId, after: Revision) -> BoxFuture<'_, Option<ScopeChanges>> {
        Box::pin(async move {
            let cell = self.agents.get(agent)?;
            let patched = cell.patch(&self.store, &self.system, after).await;
            patched
                .inspect_err(|error| tracing::debug!(%error, %agent, "applying changes failed"))
                .ok()
                .flatten()
        })
    }

    fn next_read(&self, scope: Scope) -> Option<(AgentRef, Revision)> {
        self.agents.get(AgentId(scope.0))?.next_read()
    }

    fn offers_prompt_tools(&self, tenant: TenantId, agent: AgentId, after: Revision) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let snapshot = self.snapshot_of(Payer::Tenant(tenant), tenant, agent).await.ok();
            let stale = || self.agents.get(agent)?.stale().filter(|stale| stale.revision >= after);
            snapshot
                .or_else(stale)
                .is_none_or(|snapshot| snapshot.description.tools.contains(ToolSet::PromptTools))
        })
    }

    fn served<'a>(
        &'a self,
        tenant: TenantId,
        agent: AgentId,
        changes: &'a [(Change, Audience)],
        uris: &'a [ResourceUri],
        callers: &'a HashSet<CallerLabels>,
    ) -> BoxFuture<'a, Vec<ServedAnew>> {
        Box::pin(async move {
            match self.snapshot_of(Payer::Tenant(tenant), tenant, agent).await {
                Ok(snapshot) => self.served_anew(tenant, &snapshot, changes, uris, callers).await,
                Err(_) => vec![ServedAnew::unknown(changes, callers)],
            }
        })
    }
}
