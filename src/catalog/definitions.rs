//! The operations of owners on definitions of any kind: put, delete, read and list.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::limits::CatalogLimits;
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, TenantId};
use crate::model::kinds::Member;
use crate::model::precondition::{Precondition, Written};
use crate::model::scope::{Revision, Scope};
use crate::store::StoreError;
use crate::store::definitions::{Put, Removal, Table};
use crate::store::write::Write;

/// A kind of definition: the checks when one is registered.
pub trait Registered: Table + Member {
    /// The maximum number of definitions of an agent.
    fn most(limits: &CatalogLimits) -> usize;

    /// Whether [`check`](Self::check) or [`find_conflict`](Self::find_conflict) does anything for a definition.
    fn needs_check(_new: &Self::New) -> bool {
        false
    }

    /// Checks a definition alone, before the agent is locked.
    fn check(
        _catalog: &Catalog,
        _tenant: TenantId,
        _new: &Self::New,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether a replacement is equal in everything that [`check`](Self::check) examines.
    fn is_checked_as(&self, _new: &Self::New) -> bool {
        true
    }

    /// Finds the first of new keys that conflicts with another of them or with a known one; these do not conflict with
    /// each other.
    fn find_conflict(
        _catalog: &Catalog,
        _tenant: TenantId,
        _known: Vec<Self::Key>,
        _new: Vec<Self::Key>,
    ) -> impl Future<Output = Result<Option<(usize, Fault)>, Fault>> + Send {
        std::future::ready(Ok(None))
    }

    /// Checks that a definition can be added to the others of the agent, and counts it.
    fn add(
        catalog: &Catalog,
        write: &mut Write,
        target: &Target,
        new: &Self::New,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Checks that a definition can be added or replaced beside the others of the agent.
    fn check_placed(
        _write: &mut Write,
        _target: &Target,
        _new: &Self::New,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        std::future::ready(Ok(()))
    }

    /// Adds to the number of definitions of the agent, if that is stored.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if there are more than the agent may have.
    fn count(
        _catalog: &Catalog,
        _write: &mut Write,
        _target: &Target,
        _by: i32,
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        std::future::ready(Ok(()))
    }
}

/// A definition with the bytes of its contents.
#[derive(Debug, Clone)]
pub struct Full<K> {
    /// The definition.
    pub definition: K,
    /// The bytes of each content.
    pub bytes: BTreeMap<ContentHash, Bytes>,
}

/// Checks the number of definitions of an agent.
pub(super) fn check_count<K: Registered>(count: usize, limits: &CatalogLimits) -> Result<(), Fault> {
    if count > K::most(limits) {
        let name = K::NAME;
        return Err(Fault::invalid_params(format!(
            "the agent's limit of {name}s is reached; delete one first"
        )));
    }
    Ok(())
}

/// By how much the number of definitions grows.
pub(super) fn growth(before: usize, after: usize) -> i32 {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    count(after) - count(before)
}

impl Catalog {
    /// At most `limit` definitions after a key, in byte order, and whether there are more.
    pub async fn definitions<K: Registered>(
        &self,
        agent: &Agent,
        after: &str,
        limit: i64,
    ) -> Result<(Vec<K>, bool), Fault> {
        let mut view = self.store.snapshot().await?;
        let found = view.definitions_after(agent.into(), (after, limit), &self.system).await?;
        view.end().await?;
        Ok(found)
    }

    /// A definition with its contents.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn definition<K: Registered>(&self, agent: &Agent, key: &K::Key) -> Result<Full<K>, Fault> {
        let key: &str = key.borrow();
        let mut view = self.store.snapshot().await?;
        let found = view.definitions::<K>(agent.into(), Some(&[key.to_owned()]), &self.system).await?.pop();
        view.end().await?;
        let definition = found.ok_or(Fault::NotFound(K::NAME))?;
        let hashes: Vec<_> = definition.contents().into_iter().map(|(hash, _)| hash).collect();
        let bytes = self.store.contents(agent.tenant, agent.uid, &hashes).await?;
        if hashes.iter().all(|hash| bytes.contains_key(hash)) {
            Ok(Full { definition, bytes })
        } else {
            Err(StoreError::Unreadable("content").into())
        }
    }

    /// Adds or replaces a definition. A definition that does not differ is unchanged, and keeps its revision.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for what [`Registered::check`] and [`Registered::add`] refuse; [`Fault::Unavailable`]
    /// if too much is being rendered; [`Fault::NotFound`] if the agent is gone; [`Fault::RevisionMismatch`].
    pub async fn put<K: Registered>(
        self: &Arc<Self>,
        agent: &Agent,
        new: K::New,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        K::check(self, agent.tenant, &new).await?;
        let (key, new) = (K::key_of(&new).clone(), Arc::new(new));
        self.put_made::<K>(agent, key, move |_| Ok(Arc::clone(&new)), condition, audited).await
    }

    /// Compares the definition that another one would replace with what a request requires, if anything, before a check that
    /// may ask the database of a connection, or render. The write compares it again.
    ///
    /// # Errors
    /// [`Fault::RevisionMismatch`].
    pub async fn check_condition<K: Registered>(
        &self,
        agent: &Agent,
        new: &K::New,
        condition: &Precondition,
    ) -> Result<(), Fault> {
        if !K::needs_check(new) || *condition == Precondition::default() {
            return Ok(());
        }
        let key: &str = K::key_of(new).borrow();
        let mut view = self.store.snapshot().await?;
        let old = view.definitions::<K>(agent.into(), Some(&[key.to_owned()]), &self.system).await?.pop();
        view.end().await?;
        condition.check(old.as_ref().map(K::revision))
    }

    /// As [`put`](Self::put), with a definition that is computed from the one that it replaces, if any.
    pub(super) async fn put_made<K: Registered>(
        self: &Arc<Self>,
        agent: &Agent,
        key: K::Key,
        make: impl Fn(Option<&K>) -> Result<Arc<K::New>, Fault> + Send + Sync + 'static,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let (catalog, agent) = (Arc::clone(self), AgentRef::from(agent));
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact_shared(Scope::from(agent.uid), &audited, || {
                        async |write: &mut Write| {
                            let (target, old) = Target::lock::<K>(write, agent, key.borrow()).await?;
                            condition.check(old.as_ref().map(K::revision))?;
                            let new = make(old.as_ref())?;
                            catalog.put_checked(write, &target, old.as_ref(), &new).await
                        }
                    })
                    .await
            })
            .await
    }

    async fn put_checked<K: Registered>(
        &self,
        write: &mut Write,
        target: &Target,
        old: Option<&K>,
        new: &K::New,
    ) -> Result<Written, Fault> {
        let &Target { agent, scope, revision } = target;
        let Some(put) = Put::replacing(old, new) else {
            return Ok(Written { revision: old.map_or(revision, K::revision), created: false });
        };
        if old.is_none() {
            K::add(self, write, target, new).await?;
        }
        K::check_placed(write, target, new).await?;
        if let Some(old) = old {
            match growth(old.places(), K::places_of(new)) {
                0 => {}
                growth => K::count(self, write, target, growth).await?,
            }
        }
        let key = K::key_of(new).borrow();
        write.change_for(put.audience.clone(), scope, put.change, key);
        for (change, subject) in K::further_changes(old, Some(new)) {
            write.change_for(put.audience.clone(), scope, change, subject);
        }
        write.set_summary(target.summary(key, old, Some(new)));
        write.put(agent, &[put], revision, self.system.clock.now()).await?;
        Ok(Written { revision, created: old.is_none() })
    }

    /// Removes a definition; returns the revision of the removal.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete<K: Registered>(
        self: &Arc<Self>,
        agent: &Agent,
        key: K::Key,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Revision, Fault> {
        let (catalog, agent) = (Arc::clone(self), AgentRef::from(agent));
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact_shared(Scope::from(agent.uid), &audited, || {
                        async |write: &mut Write| {
                            let key = key.borrow();
                            let (target, old) = Target::lock::<K>(write, agent, key).await?;
                            let old = old.ok_or(Fault::NotFound(K::NAME))?;
                            condition.check(Some(old.revision()))?;
                            K::count(&catalog, write, &target, growth(old.places(), 0)).await?;
                            let removal = Removal::of(&old);
                            write.change_for(removal.audience.clone(), target.scope, K::REMOVED, key);
                            for (change, subject) in K::further_changes(Some(&old), None) {
                                write.change_for(removal.audience.clone(), target.scope, change, subject);
                            }
                            write.set_summary(target.summary(key, Some(&old), None::<&K::New>));
                            let now = catalog.system.clock.now();
                            write.delete::<K>(agent, &[removal], now).await?;
                            Ok(target.revision)
                        }
                    })
                    .await
            })
            .await
    }
}
