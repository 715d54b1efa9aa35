//! Computes the writes that replace all definitions of an agent by those of a manifest. Pure, and generic over the kind.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::model::audience::Audience;
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{ByKind, Family, Member, by_kind, each_kind};
use crate::model::scope::{ChangeKind, Revision};
use crate::store::agent_state::Stored;
use crate::store::definitions::{Put, Removal};

/// Definitions to be registered.
#[derive(Debug)]
pub struct Wanted;

impl Family for Wanted {
    type Of<K: DefinitionKind> = Vec<K::New>;
}

/// Keys, in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys;

impl Family for Keys {
    type Of<K: DefinitionKind> = Vec<String>;
}

/// Writes of one kind each.
#[derive(Debug)]
struct Writes<'s>(PhantomData<&'s ()>);

impl<'s> Family for Writes<'s> {
    type Of<K: DefinitionKind> = Steps<'s, K>;
}

/// The writes of all kinds.
#[derive(Debug)]
pub(super) struct Plan<'s>(ByKind<Writes<'s>>);

/// The writes of one kind; each list in byte order.
#[derive(Debug)]
pub(super) struct Steps<'s, K: DefinitionKind> {
    pub(super) puts: Vec<Put<'s, K>>,
    pub(super) removals: Vec<Removal<'s>>,
    unchanged: usize,
}

/// The effect of applying a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The revision of the agent's scope: the new one, or the current one of a dry run.
    pub revision: Revision,
    /// The definitions that were added.
    pub created: ByKind<Keys>,
    /// The definitions that were changed.
    pub updated: ByKind<Keys>,
    /// The definitions that were removed.
    pub deleted: ByKind<Keys>,
    /// How many definitions are unchanged.
    pub unchanged: usize,
}

impl<'s> Plan<'s> {
    pub(super) fn new(stored: &'s ByKind<Stored>, wanted: &'s ByKind<Wanted>) -> Self {
        Self(by_kind!(Writes<'s>, K => Steps::<K>::new(K::of(stored), K::of(wanted))))
    }

    /// The writes of one kind.
    pub(super) fn steps<K: Member>(&self) -> &Steps<'s, K> {
        K::of(&self.0)
    }

    /// The changes of every kind, in the order in which they are numbered.
    pub(super) fn changes(&self) -> Vec<(&Audience, ChangeKind, &str)> {
        let mut changes = Vec::new();
        each_kind!(K => changes.extend(self.steps::<K>().changes()));
        changes
    }

    pub(super) fn applied(&self, revision: Revision) -> Applied {
        let mut unchanged = 0;
        each_kind!(K => unchanged += self.steps::<K>().unchanged);
        Applied {
            revision,
            created: by_kind!(Keys, K => self.steps::<K>().put_keys(true)),
            updated: by_kind!(Keys, K => self.steps::<K>().put_keys(false)),
            deleted: by_kind!(Keys, K => self.steps::<K>().removed_keys()),
            unchanged,
        }
    }
}

impl<'s, K: DefinitionKind> Steps<'s, K> {
    /// Each key is requested at most once.
    fn new(stored: &'s [K], wanted: &'s [K::New]) -> Self {
        let mut left: BTreeMap<_, _> = stored.iter().map(|old| (old.key(), old)).collect();
        let by_key: BTreeMap<_, _> = wanted.iter().map(|new| (K::key_of(new), new)).collect();
        let puts: Vec<_> =
            by_key.iter().filter_map(|(key, new)| Put::replacing(left.remove(key), new)).collect();
        let removals = left.into_values().map(Removal::of).collect();
        Self { unchanged: by_key.len() - puts.len(), puts, removals }
    }

    /// By how much the number of definitions grows.
    pub(super) fn growth(&self) -> i32 {
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        count(self.put_keys(true).len()) - count(self.removals.len())
    }

    fn changes(&self) -> impl Iterator<Item = (&Audience, ChangeKind, &str)> {
        let puts = self.puts.iter().map(|put| (&put.audience, put.change, K::key_of(put.new).borrow()));
        puts.chain(self.removals.iter().map(|removal| (&removal.audience, K::REMOVED, removal.key)))
    }

    /// The keys of the definitions that are created, or of those that are replaced.
    fn put_keys(&self, created: bool) -> Vec<String> {
        let puts = self.puts.iter().filter(|put| (put.change == K::ADDED) == created);
        puts.map(|put| K::key_of(put.new).borrow().to_owned()).collect()
    }

    fn removed_keys(&self) -> Vec<String> {
        self.removals.iter().map(|removal| removal.key.to_owned()).collect()
    }
}
