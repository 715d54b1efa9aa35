//! Computes the writes that replace all definitions of an agent by those of a manifest. Pure, and generic over the kind.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use super::definitions::growth;
use crate::model::audience::Audience;
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{ByKind, Family, Member, by_kind, each_kind};
use crate::model::scope::{ChangeKind, Revision};
use crate::store::agent_rows::Stored;
use crate::store::definitions::{Put, Removal};

/// Definitions to be registered.
#[derive(Debug)]
pub struct NewDefinitions;

impl Family for NewDefinitions {
    /// `None` leaves the definitions of the kind as they are.
    type Of<K: DefinitionKind> = Option<Vec<K::New>>;
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
    /// The changes besides those of the definitions.
    further: Vec<(Audience, ChangeKind, String)>,
    /// By how much the number of definitions grows.
    pub(super) growth: i32,
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
    pub(super) fn new(stored: &'s ByKind<Stored>, wanted: &'s ByKind<NewDefinitions>) -> Self {
        Self(by_kind!(Writes<'s>, K => {
            let wanted = K::of(wanted).as_deref();
            wanted.map_or_else(Steps::none, |wanted| Steps::<K>::new(K::of(stored), wanted))
        }))
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
    fn none() -> Self {
        Self { puts: Vec::new(), removals: Vec::new(), further: Vec::new(), growth: 0, unchanged: 0 }
    }

    /// Each key is requested at most once.
    fn new(stored: &'s [K], wanted: &'s [K::New]) -> Self {
        let places = |stored: &[K]| stored.iter().map(K::places).sum();
        let growth = growth(places(stored), wanted.iter().map(K::places_of).sum());
        let mut left: BTreeMap<_, _> = stored.iter().map(|old| (old.key(), old)).collect();
        let by_key: BTreeMap<_, _> = wanted.iter().map(|new| (K::key_of(new), new)).collect();
        let (mut puts, mut further) = (Vec::new(), Vec::new());
        let mut add = |audience: &Audience, old, new| {
            let changes = K::further_changes(old, new).into_iter();
            further.extend(changes.map(|(change, subject)| (audience.clone(), change, subject)));
        };
        for (key, new) in &by_key {
            let old = left.remove(key);
            if let Some(put) = Put::replacing(old, new) {
                add(&put.audience, old, Some(new));
                puts.push(put);
            }
        }
        let removed = left.into_values().map(|old| (old, Removal::of(old)));
        let removals = removed.inspect(|(old, removal)| add(&removal.audience, Some(old), None));
        let removals = removals.map(|(_, removal)| removal).collect();
        Self { unchanged: by_key.len() - puts.len(), puts, removals, further, growth }
    }

    fn changes(&self) -> impl Iterator<Item = (&Audience, ChangeKind, &str)> {
        let puts = self.puts.iter().map(|put| (&put.audience, put.change, K::key_of(put.new).borrow()));
        let removals = self.removals.iter().map(|removal| (&removal.audience, K::REMOVED, removal.key));
        let further =
            self.further.iter().map(|(audience, change, subject)| (audience, *change, subject.as_str()));
        puts.chain(removals).chain(further)
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
