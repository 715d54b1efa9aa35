//! The writes that replace all definitions of an agent by those of a manifest: pure, and generic over the kind.

use std::collections::BTreeMap;

use super::difference::{Registered, removal, step};
use crate::model::prompt::{NewPrompt, Prompt};
use crate::model::resource::{NewResource, Resource};
use crate::model::scope::{ChangeKind, Revision};
use crate::model::template::{NewTemplate, ResourceTemplate};
use crate::store::write::{Put, Removal};

/// All definitions of an agent.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) resources: Vec<Resource>,
    pub(super) templates: Vec<ResourceTemplate>,
    pub(super) prompts: Vec<Prompt>,
}

/// The definitions of a manifest.
#[derive(Debug)]
pub struct NewManifest {
    /// Its resources.
    pub resources: Vec<NewResource>,
    /// Its resource templates.
    pub templates: Vec<NewTemplate>,
    /// Its prompts.
    pub prompts: Vec<NewPrompt>,
}

/// The writes of all kinds.
#[derive(Debug)]
pub(super) struct Plan<'s> {
    pub(super) resources: Steps<'s, NewResource>,
    pub(super) templates: Steps<'s, NewTemplate>,
    pub(super) prompts: Steps<'s, NewPrompt>,
}

/// The writes of one kind; each list in byte order.
#[derive(Debug)]
pub(super) struct Steps<'s, N> {
    pub(super) puts: Vec<Put<'s, N>>,
    pub(super) removals: Vec<Removal<'s>>,
    pub(super) created: Vec<String>,
    pub(super) updated: Vec<String>,
    pub(super) deleted: Vec<String>,
    pub(super) unchanged: usize,
    /// For the log of changes.
    pub(super) changes: Vec<(ChangeKind, String)>,
}

/// The effect of applying a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The revision of the agent's scope: the new one, or the current one of a dry run.
    pub revision: Revision,
    /// The definitions that were added.
    pub created: Names,
    /// The definitions that were changed.
    pub updated: Names,
    /// The definitions that were removed.
    pub deleted: Names,
    /// How many definitions are unchanged.
    pub unchanged: usize,
}

/// Keys of definitions by kind; each list in byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// URIs of resources.
    pub resources: Vec<String>,
    /// Resource templates.
    pub templates: Vec<String>,
    /// Names of prompts.
    pub prompts: Vec<String>,
}

impl<'s> Plan<'s> {
    pub(super) fn new(stored: &'s Stored, wanted: &'s NewManifest) -> Self {
        Self {
            resources: steps(&stored.resources, &wanted.resources),
            templates: steps(&stored.templates, &wanted.templates),
            prompts: steps(&stored.prompts, &wanted.prompts),
        }
    }

    /// The changes of every kind, in the order in which they are numbered.
    pub(super) fn changes(&self) -> impl Iterator<Item = &(ChangeKind, String)> {
        self.resources.changes.iter().chain(&self.templates.changes).chain(&self.prompts.changes)
    }

    pub(super) fn into_applied(self, revision: Revision) -> Applied {
        let Self { resources, templates, prompts } = self;
        let names = |resources, templates, prompts| Names { resources, templates, prompts };
        Applied {
            revision,
            created: names(resources.created, templates.created, prompts.created),
            updated: names(resources.updated, templates.updated, prompts.updated),
            deleted: names(resources.deleted, templates.deleted, prompts.deleted),
            unchanged: resources.unchanged + templates.unchanged + prompts.unchanged,
        }
    }
}

/// The writes of one kind. Each key is wanted at most once.
fn steps<'s, R: Registered>(stored: &'s [R], wanted: &'s [R::New]) -> Steps<'s, R::New> {
    let mut left: BTreeMap<_, _> = stored.iter().map(|old| (old.key(), old)).collect();
    let by_key: BTreeMap<_, _> = wanted.iter().map(|new| (R::key_of(new), new)).collect();
    let mut steps = Steps {
        puts: Vec::new(),
        removals: Vec::new(),
        created: Vec::new(),
        updated: Vec::new(),
        deleted: Vec::new(),
        unchanged: 0,
        changes: Vec::new(),
    };
    for (key, new) in by_key {
        let old = left.remove(key);
        let Some((kind, put)) = step(old, new) else {
            steps.unchanged += 1;
            continue;
        };
        let names = if old.is_none() { &mut steps.created } else { &mut steps.updated };
        names.push(key.to_owned());
        steps.puts.push(put);
        steps.changes.push((kind, key.to_owned()));
    }
    for (key, old) in left {
        steps.deleted.push(key.to_owned());
        steps.removals.push(removal(old));
        steps.changes.push((R::REMOVED, key.to_owned()));
    }
    steps
}
