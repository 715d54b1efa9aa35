//! The cells of all scopes of one kind.

use std::convert::Infallible;
use std::sync::Arc;

use quick_cache::sync::Cache;

use super::cell::ScopeCell;
use super::scope_map::CellSet;
use crate::model::scope::{Revision, Scope};

/// A bounded map from scope to cell; the least recently used cells are evicted.
#[derive(Debug)]
pub struct CellMap<C>(Cache<Scope, Arc<C>>);

impl<C> CellMap<C> {
    /// Holds at most about `capacity` cells.
    pub fn new(capacity: usize) -> Self {
        Self(Cache::new(capacity))
    }

    /// The cell of a scope, if there is one.
    pub fn get(&self, scope: impl Into<Scope>) -> Option<Arc<C>> {
        self.0.get(&scope.into())
    }

    /// The cell of a scope, created before anything is read into it.
    pub fn get_or_create(&self, scope: impl Into<Scope>, create: impl FnOnce(Scope) -> C) -> Arc<C> {
        let scope = scope.into();
        let Ok(cell) = self.0.get_or_insert_with(&scope, || Ok::<_, Infallible>(Arc::new(create(scope))));
        cell
    }

    /// Drops the cell of a scope.
    pub fn remove(&self, scope: impl Into<Scope>) {
        self.0.remove(&scope.into());
    }

    /// How many cells there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<C: ScopeCell> CellSet for CellMap<C> {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        self.get(scope).map(|cell| cell as Arc<dyn ScopeCell>)
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        self.0.iter().filter_map(|(scope, cell)| Some((scope, cell.applied()?))).collect()
    }

    fn clear(&self) {
        self.0.clear();
    }
}
