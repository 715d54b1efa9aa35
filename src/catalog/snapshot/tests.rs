//! Lists of resources: pages of all that they are made of; and the cell of an agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::skill::{FilePath, SkillPath};
use proptest::prelude::*;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use super::content_revisions::ContentRevisions;
use super::view::View;
use super::{AgentCell, AgentSnapshot, ChangeRevisions, Definitions};
use crate::cache::{MemoryBudget, ScopeCell};
use crate::catalog::skill_placement::check_no_overlap;
use crate::model::agent::AgentDescription;
use crate::model::call::{List, ListPage};
use crate::model::content::ContentHash;
use crate::model::ids::{AgentId, AgentRef, ConnectionId, ResourceUri, Slug, TenantId};
use crate::model::kinds::by_kind;
use crate::model::label::Labels;
use crate::model::mount::{Ages, Mount, MountEntry, MountPlace, NewMount, TreeId};
use crate::model::resource::{Definition, Part, PartKind, Resource};
use crate::model::scope::Revision;
use crate::model::skill::{Skill, SkillRoot};
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
    Arc::new(AgentSnapshot {
        timeline: 1,
        revision: REVISION,
        has_labels: false,
        changed: ChangeRevisions::all_at(REVISION),
        description: AgentDescription {
            name: String::new(),
            title: None,
            instructions: None,
            tools: ToolSets::default(),
        },
        definitions: Definitions::new(stored, entries.collect()),
        touched: ContentRevisions::all_at(REVISION),
        touched_resources: ContentRevisions::all_at(REVISION),
    })
}

fn cell() -> AgentCell {
    let agent = AgentRef { tenant: TenantId(Uuid::from_u128(1)), uid: AgentId(Uuid::from_u128(2)) };
    AgentCell::new(agent, 1, MemoryBudget::new(1 << 20).pin("test"))
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
