//! What documents change of the tenants, connections and agents of a gateway.

use std::collections::BTreeSet;
use std::fmt::Write;

use content_source::check_settings;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::admin::{Admin, Request};
use super::documents::{Documents, Object, ObjectKind};
use super::object::{encoded, items};
use super::output::Failure;
use super::progress::Progress;
use super::reference;
use super::unified::unified_values;
use crate::config::Environment;

/// What is done beside the objects of documents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Delete objects that no document describes, of the kinds that documents describe.
    pub(super) prune: bool,
    /// Set all secrets again, those that are set as well.
    pub(super) secrets: bool,
}

/// What would make a gateway as documents describe it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In the order of their creation.
    pub(super) changes: Vec<Change>,
    /// In the order of their deletion.
    pub(super) deletions: Vec<(ObjectKind, String)>,
    pub(super) unchanged: usize,
}

/// An object to create or to update.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: ObjectKind,
    pub(super) id: String,
    pub(super) creates: bool,
    members: Map<String, Value>,
    condition: Option<(&'static str, String)>,
    /// The changed lines.
    difference: String,
}

/// Compares the objects of documents with those of the gateway.
pub(super) fn plan(
    admin: &Admin,
    documents: &Documents,
    options: Options,
    progress: &Progress,
) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    let mut present_tenants = BTreeSet::new();
    progress.expect(documents.objects.len());
    for object in &documents.objects {
        match change(admin, object, options.secrets)? {
            Some(change) => {
                for tenant in change.tenants() {
                    if !documents.describe(ObjectKind::Tenant, tenant) && !present_tenants.contains(tenant) {
                        present_tenants.insert(present_tenant(admin, &change, tenant)?);
                    }
                }
                plan.changes.push(change);
            }
            None => plan.unchanged += 1,
        }
        progress.advance();
    }
    if options.prune {
        for kind in ObjectKind::ALL.into_iter().rev() {
            if documents.objects.iter().any(|object| object.kind == kind) {
                let others = ids(admin, kind)?.into_iter().filter(|id| !documents.describe(kind, id));
                plan.deletions.extend(others.map(|id| (kind, id)));
            }
        }
    }
    Ok(plan)
}

/// The id of a tenant that a change refers to, which must exist.
fn present_tenant(admin: &Admin, change: &Change, tenant: &str) -> Result<String, Failure> {
    if admin.find(&format!("{}/{}", ObjectKind::Tenant.list(), encoded(tenant)))?.is_some() {
        return Ok(tenant.to_owned());
    }
    let missing = format!("tenant {tenant} does not exist and is not described; create or describe it");
    Err(Failure::InvalidInput(format!("{} {}", change.kind.name(), change.id), missing))
}

/// The ids of all objects of a kind.
pub(super) fn ids(admin: &Admin, kind: ObjectKind) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct Identified {
        id: String,
    }
    let mut ids = Vec::new();
    for item in items(admin, kind.list())? {
        let Identified { id } = serde_json::from_str(item.get())?;
        ids.push(id);
    }
    Ok(ids)
}

/// Checks the members that a new object needs.
fn check_new(kind: ObjectKind, members: &Map<String, Value>) -> Result<(), String> {
    match kind {
        ObjectKind::Tenant => Ok(()),
        ObjectKind::Agent if members.get("tenant").is_some_and(Value::is_string) => Ok(()),
        ObjectKind::Agent => Err("tenant is missing; expected the id of a tenant".to_owned()),
        ObjectKind::Connection => {
            let connects_to = members.get("kind").and_then(|name| serde_json::from_value(name.clone()).ok());
            let Some(connects_to) = connects_to else { return Ok(()) };
            let none = Value::Object(Map::new());
            check_settings(connects_to, members.get("settings").unwrap_or(&none))
                .map_err(|error| error.to_string())
        }
    }
}

/// What would make an object as it is described; `None` if it is.
fn change(admin: &Admin, object: &Object, all_secrets: bool) -> Result<Option<Change>, Failure> {
    let Object { kind, id, members } = object;
    let Some(found) = admin.find(&format!("{}/{}", kind.list(), encoded(id.as_str())))? else {
        check_new(*kind, members)
            .map_err(|wrong| Failure::InvalidInput(format!("{} {id}", kind.name()), wrong))?;
        return Ok(Some(Change {
            kind: *kind,
            id: id.to_string(),
            creates: true,
            members: members.clone(),
            condition: None,
            difference: String::new(),
        }));
    };
    let present: Map<String, Value> = serde_json::from_slice(&found.body)?;
    let fixed = match kind {
        ObjectKind::Tenant => None,
        ObjectKind::Connection => Some(("kind", "type")),
        ObjectKind::Agent => Some(("tenant", "tenant")),
    };
    let mut members = members.clone();
    if let Some((member, shown)) = fixed
        && let Some(wanted) = members.remove(member)
        && present.get(member) != Some(&wanted)
    {
        let is = present.get(member).unwrap_or(&Value::Null);
        let place = format!("{} {id}", kind.name());
        let wrong = format!("{shown} is {is} and cannot become {wanted}; delete the {} first", kind.name());
        return Err(Failure::InvalidInput(place, wrong));
    }
    let (old, new) = differing(*kind, &members, &present, all_secrets);
    if new.is_empty() {
        return Ok(None);
    }
    Ok(Some(Change {
        kind: *kind,
        id: id.to_string(),
        creates: false,
        difference: unified_values(&Value::Object(old), &Value::Object(new.clone()))?,
        members: new,
        condition: found.tag.map(|tag| ("if-match", tag)),
    }))
}

/// The described members that differ: as they are, and as they should be. Members that are not described stay.
fn differing(
    kind: ObjectKind,
    wanted: &Map<String, Value>,
    present: &Map<String, Value>,
    all_secrets: bool,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut old, mut new) = (Map::new(), Map::new());
    for (name, value) in wanted {
        let is = present.get(name).unwrap_or(&Value::Null);
        let merged =
            kind == ObjectKind::Connection && matches!(name.as_str(), "settings" | "limits" | "secrets");
        let (Value::Object(members), true) = (value, merged) else {
            if comparable(name, is) != comparable(name, value) {
                if !is.is_null() {
                    old.insert(name.clone(), is.clone());
                }
                new.insert(name.clone(), value.clone());
            }
            continue;
        };
        let set = |member: &String| is.get(member).unwrap_or(&Value::Null);
        // A secret that is set cannot be compared.
        let differs = |member: &String, value: &Value| match name.as_str() {
            "secrets" => set(member).is_null() != value.is_null() || all_secrets && !value.is_null(),
            _ => set(member) != value,
        };
        let changed: Map<_, _> =
            members.iter().filter(|(member, value)| differs(member, value)).map(owned).collect();
        if changed.is_empty() {
            continue;
        }
        let before = changed.keys().filter(|member| !set(member).is_null());
        let before: Map<_, _> = before.map(|member| (member.clone(), set(member).clone())).collect();
        if name != "secrets" && !before.is_empty() {
            old.insert(name.clone(), Value::Object(before));
        }
        new.insert(name.clone(), Value::Object(changed));
    }
    (old, new)
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// A value without what makes no difference: the order of ids, and whether what is empty is there.
fn comparable(name: &str, value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(members) if members.is_empty() => None,
        Value::Array(items) if matches!(name, "tools" | "tenants") => {
            let mut sorted: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            sorted.sort_unstable();
            Some(sorted.into())
        }
        other => Some(other.clone()),
    }
}

impl Change {
    /// The tenants that it refers to.
    fn tenants(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self.kind {
            ObjectKind::Tenant => (None, None),
            ObjectKind::Agent => (self.members.get("tenant"), None),
            ObjectKind::Connection => (None, self.members.get("tenants").and_then(Value::as_array)),
        };
        one.into_iter().chain(several.into_iter().flatten()).filter_map(Value::as_str)
    }

    /// The call that makes it, with the secrets that it refers to.
    pub(super) fn request(&self, environment: &Environment) -> Result<Request, Failure> {
        let Self { kind, id, creates, members, condition, .. } = self;
        let mut members = members.clone();
        if let Some(Value::Object(secrets)) = members.get("secrets") {
            let named = |error| match error {
                Failure::Usage(wrong) => Failure::Usage(format!("{} {id}: {wrong}", kind.name())),
                other => other,
            };
            let resolved = reference::resolve(secrets, environment).map_err(named)?;
            members.insert("secrets".to_owned(), resolved);
        }
        let (method, path) = if *creates {
            members.insert("id".to_owned(), Value::from(id.as_str()));
            (Method::POST, kind.list().to_owned())
        } else {
            (Method::PATCH, format!("{}/{}", kind.list(), encoded(id)))
        };
        Ok(Request { condition: condition.clone(), ..Request::new(method, path).json(&members)? })
    }
}

impl Plan {
    /// The number of objects to create, to update and to delete.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let created = self.changes.iter().filter(|change| change.creates).count();
        (created, self.changes.len() - created, self.deletions.len())
    }

    /// Whether an object of this kind and id is created.
    pub(super) fn creates(&self, kind: ObjectKind, id: &str) -> bool {
        self.changes.iter().any(|change| change.creates && change.kind == kind && change.id == id)
    }

    /// What would be done, by object, with the changed lines of those that differ.
    pub(super) fn difference(&self) -> String {
        let mut text = String::new();
        for Change { kind, id, creates, difference, .. } in &self.changes {
            let sign = if *creates { '+' } else { '~' };
            // Writing to a string does not fail.
            let _ = write!(text, "{sign} {} {id}\n{difference}", kind.name());
        }
        for (kind, id) in &self.deletions {
            let _ = writeln!(text, "- {} {id}", kind.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(kind: ObjectKind, wanted: &Value, present: &Value, all_secrets: bool) -> (Value, Value) {
        let members = |value: &Value| value.as_object().unwrap().clone();
        let (old, new) = differing(kind, &members(wanted), &members(present), all_secrets);
        (Value::Object(old), Value::Object(new))
    }

    #[test]
    fn only_described_members_that_differ_are_changed() {
        let present = json!({"name": "A", "title": "T", "tools": ["resources", "search"], "enabled": true});
        let same = json!({"name": "A", "tools": ["search", "resources"], "limits": {}, "instructions": null});
        assert_eq!(differences(ObjectKind::Agent, &same, &present, false), (json!({}), json!({})));
        let other = json!({"name": "B", "title": null, "instructions": "I"});
        let expected = (json!({"name": "A", "title": "T"}), other.clone());
        assert_eq!(differences(ObjectKind::Agent, &other, &present, false), expected);
    }

    #[test]
    fn settings_of_connections_are_merged_and_set_secrets_left() {
        let present = json!({
            "settings": {"baseUrl": "u", "ca": "c"}, "secrets": {"headers": {"set": true}}, "limits": {"maxBytes": 1, "burst": 2},
        });
        let wanted = json!({
            "settings": {"baseUrl": "u", "ca": null}, "limits": {"burst": 3},
            "secrets": {"headers": {"env": "H"}, "password": {"env": "P"}, "gone": null},
        });
        let old = json!({"settings": {"ca": "c"}, "limits": {"burst": 2}});
        let new =
            json!({"settings": {"ca": null}, "limits": {"burst": 3}, "secrets": {"password": {"env": "P"}}});
        assert_eq!(differences(ObjectKind::Connection, &wanted, &present, false), (old, new));
        let (_, all) = differences(ObjectKind::Connection, &wanted, &present, true);
        assert_eq!(all["secrets"], json!({"headers": {"env": "H"}, "password": {"env": "P"}}));
    }
}
