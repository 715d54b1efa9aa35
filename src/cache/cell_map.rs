//! The cells of all scopes of one kind.

use std::sync::Arc;

use super::cell::ScopeCell;
use super::memory_budget::{Charge, MemoryBudget};
use super::scope_map::CellSet;
use super::weighed_cache::WeighedCache;
use crate::model::ids::TenantId;
use crate::model::scope::{Revision, Scope};

/// A map from scope to cell within the budget of all caches. A cell is not evicted while anything else refers to it, such
/// as a load: what the change feed raises is the cell that is loaded into.
#[derive(Debug)]
pub struct CellMap<C>(Arc<WeighedCache<Scope, Arc<C>>>);

impl<C: ScopeCell> CellMap<C> {
    /// An empty map within `budget`. `name` labels its metrics.
    pub fn new(budget: &Arc<MemoryBudget>, name: &'static str) -> Self {
        Self(WeighedCache::new(budget, name, |cell| Arc::strong_count(cell) > 1 || cell.is_in_doubt()))
    }

    /// The cell of a scope, if there is one. Does not count as a use.
    pub fn get(&self, scope: impl Into<Scope>) -> Option<Arc<C>> {
        self.0.peek(&scope.into())
    }

    /// The cell of a scope, created for a tenant before anything is read into it. What `create` makes charges its facts to
    /// what it is given.
    pub fn get_or_create(
        &self,
        scope: impl Into<Scope>,
        tenant: Option<TenantId>,
        create: impl FnOnce(Scope, Charge) -> C,
    ) -> Arc<C> {
        self.0.get_or_create(scope.into(), tenant, |scope, charge| Arc::new(create(*scope, charge)))
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the cell of a scope.
    pub fn remove(&self, scope: impl Into<Scope>) {
        self.0.remove(&scope.into());
    }
}

impl<C: ScopeCell> CellSet for CellMap<C> {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        self.get(scope).map(|cell| cell as Arc<dyn ScopeCell>)
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        self.0.collect(|scope, cell| Some((*scope, cell.applied()?)))
    }

    fn clear(&self) {
        self.0.clear();
    }
}
