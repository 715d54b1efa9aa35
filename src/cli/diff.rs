//! `waggle diff`: what applying a manifest would change.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;
use reqwest::Method;
use serde_json::value::RawValue;
use similar::TextDiff;

use super::admin::{Admin, Request};
use super::apply::{Applied, Changed, addressee, manifest};
use super::format::yaml;
use super::object::Members;
use super::output::{Failure, print};
use super::sources::Sources;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

#[derive(Args)]
pub(super) struct Diff {
    /// The manifest, a JSON or YAML file that names its agent; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: String,
}

impl Diff {
    /// Prints the changes; returns whether there are any.
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<bool, Failure> {
        let admin = Admin::of(sources)?;
        let wanted = manifest(&self.file)?;
        let agent = addressee(wanted.as_bytes()).map_err(|wrong| Failure::Manifest(self.file, wrong))?;
        let path = format!("/agents/{agent}/manifest");
        let present =
            admin.call(&Request { method: Method::GET, path: path.clone(), body: None, condition: None })?;
        let path = format!("{path}?dryRun=true");
        let planned = admin.call(&Request {
            method: Method::PUT,
            path,
            body: Some(wanted.clone().into_bytes()),
            condition: None,
        })?;
        let Applied { created, updated, deleted, .. } = serde_json::from_slice(&planned)?;
        let (present, wanted) = (Definitions::of(&present)?, Definitions::of(wanted.as_bytes())?);
        let mut text = String::new();
        for (sign, changed) in [('+', &created), ('~', &updated), ('-', &deleted)] {
            for (kind, id) in changed.named() {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{sign} {kind} {id}");
                if sign == '~' {
                    text.push_str(&unified(present.get(kind, id), wanted.get(kind, id))?);
                }
            }
        }
        let count = |changed: &Changed| changed.count;
        let (created, updated, deleted) = (count(&created), count(&updated), count(&deleted));
        let _ = writeln!(text, "{agent}: {created} to create, {updated} to update, {deleted} to delete");
        print(&text)?;
        Ok(created + updated + deleted > 0)
    }
}

/// The definitions of a manifest, by kind and key.
struct Definitions(BTreeMap<(&'static str, String), Box<RawValue>>);

impl Definitions {
    /// The lists of a manifest, the kinds of their items and the members with their keys.
    const LISTS: [(&'static str, &'static str, &'static str); 4] = [
        ("resources", "resource", "uri"),
        ("templates", "template", "uriTemplate"),
        ("prompts", "prompt", "name"),
        ("skills", "skill", "path"),
    ];

    fn of(manifest: &[u8]) -> Result<Self, Failure> {
        let manifest: Members = serde_json::from_slice(manifest)?;
        let mut all = BTreeMap::new();
        for (list, kind, key) in Self::LISTS {
            let Some(items) = manifest.get(list) else { continue };
            for item in serde_json::from_str::<Vec<Box<RawValue>>>(items.get())? {
                let members: Members = serde_json::from_str(item.get())?;
                if let Some(id) = members.get(key) {
                    all.insert((kind, serde_json::from_str(id.get())?), item);
                }
            }
        }
        Ok(Self(all))
    }

    fn get(&self, kind: &'static str, id: &str) -> Option<&RawValue> {
        self.0.get(&(kind, id.to_owned())).map(AsRef::as_ref)
    }
}

/// The changed lines of a definition as YAML, members in alphabetical order: their order has no meaning.
fn unified(old: Option<&RawValue>, new: Option<&RawValue>) -> Result<String, Failure> {
    let sorted = |definition: Option<&RawValue>| {
        let Some(definition) = definition else { return Ok(String::new()) };
        let value: serde_json::Value = serde_json::from_str(definition.get())?;
        yaml(&value.to_string())
    };
    let (old, new) = (sorted(old)?, sorted(new)?);
    let diff = TextDiff::from_lines(&old, &new);
    let hunks = diff.unified_diff().context_radius(CONTEXT).to_string();
    Ok(hunks.lines().flat_map(|line| ["    ", line, "\n"]).collect())
}
