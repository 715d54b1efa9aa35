//! Lists of resources: pages of all that they are made of; and the cell of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::skill::{FilePath, SkillPath};
use proptest::prelude::*;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use super::partial::PartialSnapshots;
use super::view::View;
use super::{AgentCell, AgentPart, AgentSnapshot, Definitions, DueLoad};
use crate::cache::{MemoryBudget, ScopeCell};
use crate::catalog::skill_placement::check_no_overlap;
use crate::model::agent::AgentDescription;
use crate::model::call::{List, ListPage};
use crate::model::content::ContentHash;
use crate::model::ids::{AgentId, AgentRef, ConnectionId, ResourceUri, Slug, TenantId};
use crate::model::kinds::{ByKind, by_kind};
use crate::model::label::Labels;
use crate::model::mount::{Ages, Mount, MountEntry, MountPlace, NewMount, TreeId};
use crate::model::resource::{Definition, Part, PartKind, Resource};
use crate::model::scope::Revision;
use crate::model::skill::{Skill, SkillRoot};
use crate::model::system::System;
use crate::model::tool::ToolSets;
use crate::store::agent_rows::Stored;
use crate::store::mounts::StoredEntry;

const REVISION: Revision = Revision(1);
const TREE: TreeId = TreeId(1);

fn resource(uri: &str) -> Resource {
    let definition = Definition {
        name: String::new(),
        title: None,
        description: None,
        mime_type: None,
        annotations: None,
        icons: None,
        meta: None,
    };
    Resource {
        uri: ResourceUri::parse(uri).unwrap(),
        definition,
        labels: Labels::default(),
        parts: Vec::new(),
        source: None,
        revision: REVISION,
        last_modified: OffsetDateTime::UNIX_EPOCH,
    }
}

fn skill(root: SkillRoot) -> Skill {
    let frontmatter = RawValue::from_string(r#"{"name":"n","description":"d"}"#.to_owned()).unwrap();
    let part = Part {
        uri: None,
        mime_type: None,
        kind: PartKind::Text,
        hash: ContentHash([0; 32]),
        size: 0,
        meta: None,
    };
    let files = vec![(FilePath::parse("SKILL.md").unwrap(), part)];
    Skill::new((root, frontmatter, Labels::default()), files, (REVISION, OffsetDateTime::UNIX_EPOCH)).unwrap()
}

fn mount(uri: &str) -> Mount {
    let place = MountPlace {
        connection: "files".to_owned(),
        path: String::new(),
        reference: None,
        include: Vec::new(),
        exclude: Vec::new(),
    };
    let new = NewMount {
        name: Slug::parse("m").unwrap(),
        uri: ResourceUri::parse(uri).unwrap(),
        place,
        ages: Ages::default(),
        annotations: None,
        labels: Labels::default(),
    };
    Mount::new(new, (ConnectionId(uuid::Uuid::nil()), TREE), REVISION, None).unwrap()
}

fn snapshot(
    resources: &BTreeSet<String>,
    skills: Vec<Skill>,
    files: &BTreeSet<String>,
) -> Arc<AgentSnapshot> {
    let mut stored = by_kind!(Stored, _K => Vec::new());
    stored.resources = resources.iter().map(|uri| resource(uri)).collect();
    stored.skills = skills;
    stored.mounts = vec![mount("y:/")];
    let entry = MountEntry {
        size: None,
        modified: OffsetDateTime::UNIX_EPOCH,
        validator: [0; 16],
        revision: REVISION,
    };
    let entries = files.iter().map(|path| StoredEntry { tree: TREE, path: path.clone(), entry });
    Arc::new(with(stored, entries.collect()))
}

/// The snapshot of an agent with a mount.
fn with_mount() -> AgentSnapshot {
    Arc::into_inner(snapshot(&BTreeSet::new(), Vec::new(), &BTreeSet::new())).unwrap()
}

/// The snapshot of an agent with a resource.
fn of_resource(uri: &str) -> AgentSnapshot {
    let stored = ByKind { resources: vec![resource(uri)], ..ByKind::default() };
    with(stored, Vec::new())
}

/// The snapshot of an agent with these definitions.
fn with(stored: ByKind<Stored>, entries: Vec<StoredEntry>) -> AgentSnapshot {
    let description =
        AgentDescription { name: String::new(), title: None, instructions: None, tools: ToolSets::default() };
    AgentSnapshot::new(1, REVISION, description, Definitions::new(stored, entries))
}

fn agent() -> AgentRef {
    AgentRef { tenant: TenantId(Uuid::from_u128(1)), uid: AgentId(Uuid::from_u128(2)) }
}

fn cell() -> AgentCell {
    AgentCell::new(agent(), 1, MemoryBudget::new(1 << 20).pin("test"))
}

#[test]
fn cell_has_a_fresh_snapshot_until_a_newer_revision_is_known() {
    let cell = cell();
    cell.current.store(Some(snapshot(&BTreeSet::new(), Vec::new(), &BTreeSet::new())));
    for (revision, is_fresh) in [(REVISION, true), (Revision(REVISION.0 + 1), false)] {
        cell.raise(revision);
        assert_eq!(cell.fresh().is_some(), is_fresh, "{revision:?}");
    }
}

/// The part whose URI has a number.
fn numbered(number: usize) -> AgentPart {
    AgentPart::Uri(ResourceUri::parse(&format!("x:{number}")).unwrap())
}

/// A partial snapshot at a revision.
fn at(revision: i64) -> AgentSnapshot {
    AgentSnapshot { revision: Revision(revision), ..of_resource("x:1") }
}

#[tokio::test]
async fn partial_snapshots_give_way_to_the_whole() {
    let cell = cell();
    cell.mark_large();
    assert_eq!(cell.applied(), None);
    cell.keep_partial(&numbered(1), at(1));
    assert_eq!(cell.applied(), Some(Revision(1)));
    let found = |part: Option<&AgentPart>| (cell.fresh_of(part).is_some(), cell.stale_of(part).is_some());
    assert_eq!(found(Some(&numbered(1))), (true, true));
    assert_eq!(found(Some(&numbered(2))), (false, false));
    assert_eq!(found(Some(&AgentPart::Description)), (false, false));
    assert_eq!(found(None), (false, false));
    assert!(!cell.raise(Revision(2)), "what is not loaded whole does not catch up");
    assert_eq!(found(Some(&numbered(1))), (false, true));

    let system = System::real();
    let whole = cell.keep(at(1), cell.applied(), &system).await;
    assert_eq!(found(Some(&numbered(1))), (false, true));
    cell.keep_partial(&numbered(1), at(2));
    assert!(Arc::ptr_eq(&cell.stale_of(Some(&numbered(1))).unwrap(), &whole));
    assert_eq!(cell.applied(), Some(Revision(1)));
}

#[tokio::test]
async fn nothing_older_than_a_part_is_answered() {
    let cell = cell();
    cell.mark_large();
    cell.keep_partial(&numbered(1), at(1));
    cell.keep_partial(&numbered(2), at(3));
    assert!(cell.fresh_of(Some(&numbered(1))).is_none());
    assert_eq!(cell.fresh_of(Some(&numbered(2))).unwrap().revision, Revision(3));
    // As it is read after the database was set back: it is answered, and what reveals that stays.
    let system = System::real();
    cell.keep(at(2), cell.applied(), &system).await;
    cell.keep_partial(&numbered(2), at(2));
    assert_eq!((cell.applied(), cell.stale().is_none()), (Some(Revision(3)), true));
    assert_eq!(cell.stale_of(Some(&numbered(2))).unwrap().revision, Revision(3));
    // Nor after all of it, which is too large for the cache.
    let narrow = AgentCell::new(agent(), 1, MemoryBudget::new(1 << 14).pin("test"));
    narrow.mark_large();
    narrow.keep_partial(&numbered(1), at(1));
    assert!(narrow.fresh_of(Some(&numbered(1))).is_some());
    let resources = (0..100).map(|number| resource(&format!("x:{number}"))).collect();
    let whole = with(ByKind { resources, ..ByKind::default() }, Vec::new());
    narrow.keep(AgentSnapshot { revision: Revision(2), ..whole }, narrow.applied(), &system).await;
    assert_eq!((narrow.applied(), narrow.stale().is_none()), (Some(Revision(2)), true));
    assert!(narrow.fresh_of(Some(&numbered(1))).is_none());
    // A part that was loaded meanwhile does not keep the whole out.
    cell.keep_partial(&numbered(2), at(4));
    cell.keep(at(3), Some(Revision(3)), &system).await;
    assert!(cell.stale().is_some() && cell.fresh().is_none());
}

#[test]
fn number_and_memory_of_partial_snapshots_are_bounded() {
    const MAX: usize = 64;
    let budget = MemoryBudget::new(1 << 20);
    let partial = PartialSnapshots::new(budget.pin("test"));
    let found = Arc::new(at(1));
    for number in 0..=MAX {
        partial.insert(&numbered(number), &found);
        partial.insert(&AgentPart::Description, &found);
    }
    let kept = (0..=MAX).filter(|number| partial.get(&numbered(*number)).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), (2..=MAX).collect::<Vec<_>>());
    assert!(partial.get(&AgentPart::Description).is_some());
    assert!((MAX * found.memory()..2 * MAX * found.memory()).contains(&budget.used()), "{}", budget.used());
    drop(partial);
    assert_eq!(budget.used(), 0);
    // One that is too large for the cache is dropped.
    let budget = MemoryBudget::new(2 * found.memory() as u64);
    let partial = PartialSnapshots::new(budget.pin("test"));
    partial.insert(&numbered(1), &found);
    assert_eq!((partial.get(&numbered(1)).is_none(), budget.used()), (true, 0));
}

#[test]
fn all_of_an_agent_is_due_after_ever_more_work_of_its_parts() {
    let partial = Arc::new(PartialSnapshots::new(MemoryBudget::new(1 << 20).pin("test")));
    let found = Arc::new(at(1));
    let mut done = 0;
    for work in [1_024, 2_048, 4_096] {
        let due = loop {
            if let Some(due) = DueLoad::take(&partial) {
                break due;
            }
            partial.insert(&numbered(1), &found);
            done += 16 + 1;
            for _ in 0..100 {
                assert!(partial.get(&numbered(1)).is_some());
                done += 1;
            }
        };
        assert!((work..work + 117).contains(&done), "{done}");
        partial.insert(&numbered(1), &found);
        assert!(DueLoad::take(&partial).is_none(), "it is in progress");
        due.loaded();
        done = 0;
    }
    // Content of sources is fetched again with each load: all of it is due at once, but not ever again.
    let loads = |found: AgentSnapshot| {
        let partial = Arc::new(PartialSnapshots::new(MemoryBudget::new(1 << 20).pin("test")));
        let found = Arc::new(found);
        let load = || {
            partial.insert(&numbered(1), &found);
            DueLoad::take(&partial).map(DueLoad::loaded).is_some()
        };
        [load(), load()]
    };
    assert_eq!((loads(with_mount()), loads(at(1))), ([true, false], [false, false]));
}

#[test]
fn removed_cell_says_so() {
    let cell = cell();
    assert!(!cell.is_removed());
    cell.set_removed();
    assert!(cell.is_removed());
}

proptest! {
    #[test]
    fn pages_list_each_uri_once_and_end(
        resources in prop::collection::btree_set("skill://[ab](/[ab])?(/SKILL\\.md)?|y:/[a-d]|z:1", 0..8),
        paths in prop::collection::btree_set("[ab](/[ab])?(/0)?", 0..6),
        files in prop::collection::btree_set("[a-d]|SKILL\\.md", 0..4),
        size in 1_usize..4,
    ) {
        let mut roots: Vec<SkillRoot> = Vec::new();
        for path in &paths {
            roots.push(SkillRoot::of(&SkillPath::parse(path).unwrap()));
            if check_no_overlap(roots.iter(), std::iter::empty()).is_err() {
                roots.pop();
            }
        }
        let is_apart = |uri: &String| check_no_overlap(roots.iter(), std::iter::once(uri.as_str())).is_ok();
        let resources: BTreeSet<_> = resources.into_iter().filter(is_apart).collect();
        let skills = roots.iter().map(|root| format!("{}SKILL.md", root.as_str()));
        let mounted = files.iter().map(|file| format!("y:/{file}"));
        let due: BTreeSet<_> = resources.iter().cloned().chain(skills).chain(mounted).collect();
        let snapshot = snapshot(&resources, roots.into_iter().map(skill).collect(), &files);
        let view = View::unfiltered(snapshot);
        let (mut listed, mut after) = (Vec::new(), None::<String>);
        loop {
            let ListPage::Resources(page) = view.list(List::Resources, after.as_deref(), size) else {
                panic!("not a page of resources")
            };
            prop_assert!(page.items.len() <= size);
            listed.extend(page.items.iter().map(|item| item.uri().to_string()));
            prop_assert!(listed.len() <= due.len(), "{:?}", listed);
            if !page.more {
                break;
            }
            after = listed.last().cloned();
        }
        prop_assert_eq!(listed, due.into_iter().collect::<Vec<_>>());
    }
}
