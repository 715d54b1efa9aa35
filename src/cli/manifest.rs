//! What manifests change: applied, planned, and shown.

use std::collections::BTreeMap;
use std::fmt::Write;

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::admin::{Admin, Request};
use super::documents::Manifest;
use super::object::ObjectMembers;
use super::output::Failure;
use super::unified::unified;
use crate::model::ids::Slug;

/// How many created, updated and deleted definitions are named, each.
const MAX_NAMED: usize = 20;

/// The lists of a manifest, the kinds of their items and the members with their keys.
const LISTS: [(&str, &str, &str); 5] = [
    ("resources", "resource", "uri"),
    ("templates", "template", "uriTemplate"),
    ("prompts", "prompt", "name"),
    ("skills", "skill", "path"),
    ("mounts", "mount", "name"),
];

/// What the gateway changed, or would change.
#[derive(Debug, Deserialize)]
pub(super) struct Applied {
    /// The revision of the catalog; none if its agent is still to be created.
    revision: Option<i64>,
    created: Changed,
    updated: Changed,
    deleted: Changed,
    unchanged: usize,
}

/// Definitions by kind and key.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "ChangedLists")]
struct Changed(Vec<(&'static str, String)>);

#[derive(Deserialize)]
struct ChangedLists {
    #[serde(flatten)]
    lists: BTreeMap<String, Value>,
}

impl From<ChangedLists> for Changed {
    fn from(ChangedLists { lists }: ChangedLists) -> Self {
        let named = |(list, kind, _): (&str, &'static str, &str)| {
            let keys = lists.get(list).and_then(Value::as_array).into_iter().flatten();
            let keys = keys.filter_map(Value::as_str).map(move |key| (kind, key.to_owned()));
            keys.collect::<Vec<_>>()
        };
        Self(LISTS.into_iter().flat_map(named).collect())
    }
}

/// The path of the manifest of an agent.
fn path(agent: &Slug, query: &str) -> String {
    format!("/agents/{agent}/manifest{query}")
}

fn put(manifest: &Manifest, query: &str) -> Request {
    let body = Some(manifest.json.clone().into_bytes());
    Request { body, ..Request::new(Method::PUT, path(&manifest.agent, query)) }
}

/// Makes the catalog of an agent equal to a manifest.
pub(super) fn apply(admin: &Admin, manifest: &Manifest) -> Result<Applied, Failure> {
    Ok(serde_json::from_slice(&admin.call(&put(manifest, ""))?)?)
}

/// What applying a manifest would change.
pub(super) fn plan(admin: &Admin, manifest: &Manifest) -> Result<Applied, Failure> {
    Ok(serde_json::from_slice(&admin.call(&put(manifest, "?dryRun=true"))?)?)
}

/// What a manifest would change that the gateway cannot plan yet: its agent, or connections that it names, do not exist.
pub(super) fn plan_here(admin: &Admin, manifest: &Manifest, agent_exists: bool) -> Result<Applied, Failure> {
    let wanted = Definitions::of(manifest.json.as_bytes())?;
    if !agent_exists {
        let created = Changed(wanted.0.into_keys().collect());
        let (updated, deleted) = (Changed::default(), Changed::default());
        return Ok(Applied { revision: None, created, updated, deleted, unchanged: 0 });
    }
    let present = present(admin, &manifest.agent)?;
    let missing = |from: &Definitions, of: &Definitions| {
        Changed(of.0.keys().filter(|key| !from.0.contains_key(*key)).cloned().collect())
    };
    let both = wanted.0.iter().filter_map(|(key, new)| Some((key, new, present.0.get(key)?)));
    let mut updated = Vec::new();
    let mut unchanged = 0;
    for (key, new, old) in both {
        let value = |text: &RawValue| serde_json::from_str::<Value>(text.get());
        if value(new)? == value(old)? {
            unchanged += 1;
        } else {
            updated.push(key.clone());
        }
    }
    let (created, deleted) = (missing(&present, &wanted), missing(&wanted, &present));
    Ok(Applied { revision: None, created, updated: Changed(updated), deleted, unchanged })
}

/// The definitions of an agent as they are.
fn present(admin: &Admin, agent: &Slug) -> Result<Definitions, Failure> {
    Definitions::of(&admin.call(&Request::get(path(agent, "")))?)
}

impl Applied {
    /// Whether anything differs.
    pub(super) fn is_a_change(&self) -> bool {
        !(self.created.0.is_empty() && self.updated.0.is_empty() && self.deleted.0.is_empty())
    }

    /// What was done, or would be, by definition.
    pub(super) fn summary(&self, agent: &Slug, dry_run: bool) -> String {
        let Self { revision, created, updated, deleted, unchanged } = self;
        let mut text = String::new();
        for (verb, Changed(names)) in [("create", created), ("update", updated), ("delete", deleted)] {
            // Writing to a string does not fail.
            for (kind, name) in names.iter().take(MAX_NAMED) {
                let _ = writeln!(text, "{verb} {kind} {name}");
            }
            if let Some(more @ 1..) = names.len().checked_sub(MAX_NAMED) {
                let _ = writeln!(text, "{verb} {more} more");
            }
        }
        let (when, done) = if dry_run { ("still at", "would be ") } else { ("at", "") };
        let _ = match revision {
            Some(revision) => write!(text, "{agent} is {when} revision {revision}"),
            None => write!(text, "{agent} is not yet as described"),
        };
        let _ = writeln!(
            text,
            ": {done}{} created, {} updated, {} deleted, {unchanged} unchanged",
            created.0.len(),
            updated.0.len(),
            deleted.0.len(),
        );
        text
    }

    /// What would be done, by definition, with the changed lines of those that differ.
    pub(super) fn difference(&self, admin: &Admin, manifest: &Manifest) -> Result<String, Failure> {
        let agent = &manifest.agent;
        let Self { created, updated, deleted, .. } = self;
        let (old, new) = if updated.0.is_empty() {
            (Definitions::default(), Definitions::default())
        } else {
            (present(admin, agent)?, Definitions::of(manifest.json.as_bytes())?)
        };
        let mut text = String::new();
        for (sign, Changed(names)) in [('+', created), ('~', updated), ('-', deleted)] {
            for key in names {
                let _ = writeln!(text, "{sign} {} {}", key.0, key.1);
                if sign == '~' {
                    text.push_str(&unified(old.get(key), new.get(key))?);
                }
            }
        }
        let (created, updated, deleted) = (created.0.len(), updated.0.len(), deleted.0.len());
        let _ = writeln!(text, "{agent}: {created} to create, {updated} to update, {deleted} to delete");
        Ok(text)
    }
}

/// The definitions of a manifest, by kind and key.
#[derive(Default)]
struct Definitions(BTreeMap<(&'static str, String), Box<RawValue>>);

impl Definitions {
    fn of(manifest: &[u8]) -> Result<Self, Failure> {
        let manifest: ObjectMembers = serde_json::from_slice(manifest)?;
        let mut all = BTreeMap::new();
        for (list, kind, key) in LISTS {
            let Some(items) = manifest.get(list) else { continue };
            for item in serde_json::from_str::<Vec<Box<RawValue>>>(items.get())? {
                let members: ObjectMembers = serde_json::from_str(item.get())?;
                if let Some(id) = members.get(key) {
                    all.insert((kind, serde_json::from_str(id.get())?), item);
                }
            }
        }
        Ok(Self(all))
    }

    fn get(&self, key: &(&'static str, String)) -> Option<&RawValue> {
        self.0.get(key).map(AsRef::as_ref)
    }
}
