//! The resources that changed last, as every replica with the agent in memory reads them after most writes.
//!
//! This join takes PostgreSQL less than two thirds of the time of the union of [`super::agent_state`], which is prepared to read
//! definitions of every kind. It repeats a definition for each change and each part of it, so both are few.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::changes::audience;
use super::resources::join;
use super::tagged_rows::{TaggedRow, required};
use super::{Store, StoreError};
use crate::model::audience::Audience;
use crate::model::ids::AgentRef;
use crate::model::resource::Resource;
use crate::model::scope::{Change, ChangeKind, Head, Revision};
use crate::model::system::{FailPoint, System};

/// The maximum number of changes that are read so.
const MAX_CHANGES: usize = 4;

/// A few changes of an agent, all of them of resources.
#[derive(Debug)]
pub struct ChangedResources {
    /// The head of the agent's scope.
    pub head: Head,
    /// The changes after the revision that was asked for, in order.
    pub changes: Vec<Change>,
    /// Whom each of them concerns, and when it was made, by the database's clock.
    pub audiences: Vec<(Audience, OffsetDateTime)>,
    /// The resources that still exist, in byte order of their URIs.
    pub resources: Vec<Resource>,
}

impl ChangedResources {
    /// Whether changes are few and concern these resources alone, each registered in one part at most:
    /// [`Store::changed_resources`] reads all that they concern.
    pub fn suffice(changes: &[Change], resources: &[Resource]) -> bool {
        let is_of_resource = |kind: ChangeKind| kind.is_of_resource() && kind != ChangeKind::ResourceTouched;
        changes.len() <= MAX_CHANGES
            && changes.iter().all(|change| is_of_resource(change.kind))
            && resources.iter().all(|resource| resource.source.is_none() && resource.parts.len() <= 1)
    }
}

impl Store {
    /// Reads an agent's changes after a revision and the resources that they concern; `None` if the agent does not exist,
    /// there are more than four changes, or one of them concerns something else, such as the files of a mount, content of a
    /// connection, or a resource with several parts.
    pub async fn changed_resources(
        &self,
        agent: AgentRef,
        after: Revision,
        system: &System,
    ) -> Result<Option<ChangedResources>, StoreError> {
        let rows = self
            .read(async |connection| {
                // Each URI is looked up by its whole key, in subqueries that are not flattened: the database expects few rows
                // of an agent and would rather read all of them.
                sqlx::query!(
                    r#"select h.revision as head, h.floor, c.revision as "changed?", c.ordinal as "ordinal?",
                        c.kind as "kind?", c.subject as "subject?", c.audience as "audience?", c.at as "at?",
                        d.name as "name?", d.title, d.description, d.mime_type, d.annotations, d.icons, d.meta,
                        nullif(d.labels, '{}') as labels, d.connection is not null as "is_sourced!",
                        d.revision as "revision?", d.last_modified as "last_modified?",
                        p.ordinal as "part?", p.part_uri, p.mime_type as part_mime_type, p.meta as part_meta,
                        p.kind as "part_kind?", p.hash as "hash?", p.size as "size?"
                    from heads h join agents a on a.uid = h.scope
                    left join lateral (
                        select revision, ordinal, kind, subject, audience, at from changes
                        where scope = h.scope and revision > $3 order by revision, ordinal limit $4
                    ) c on true
                    left join lateral (
                        select * from resources where tenant = $1 and agent = $2 and uri = c.subject offset 0
                    ) d on true
                    left join lateral (
                        select * from resource_contents where tenant = $1 and agent = $2 and uri = c.subject limit 2
                    ) p on true
                    where h.scope = $2 and a.tenant = $1 and a.deleted_at is null"#,
                    agent.tenant.0,
                    agent.uid.0,
                    after.0,
                    i64::try_from(MAX_CHANGES + 1).unwrap_or(i64::MAX),
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        system.pause(FailPoint::SnapshotBetweenReads).await;
        let Some(first) = rows.first() else { return Ok(None) };
        let head = Head { revision: Revision(first.head), floor: Revision(first.floor) };
        let is_sourced = rows.iter().any(|row| row.is_sourced);
        let (mut changes, mut resources, mut parts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for row in rows {
            // The only row, if there are no changes.
            let (Some(revision), Some(subject)) = (row.changed, row.subject) else { break };
            if let Some(part) = row.part {
                let part_row = TaggedRow {
                    key: Some(subject.clone()),
                    ordinal: Some(part),
                    name: row.part_uri,
                    mime_type: row.part_mime_type,
                    kind: row.part_kind,
                    hash: row.hash,
                    number: row.size,
                    meta: row.part_meta,
                    ..TaggedRow::default()
                };
                parts.insert((subject.clone(), part), part_row.try_into()?);
            }
            if row.name.is_some() && !resources.contains_key(&subject) {
                let resource = TaggedRow {
                    key: Some(subject.clone()),
                    name: row.name,
                    title: row.title,
                    description: row.description,
                    mime_type: row.mime_type,
                    annotations: row.annotations,
                    icons: row.icons,
                    meta: row.meta,
                    labels: row.labels,
                    number: row.revision,
                    last_modified: row.last_modified,
                    ..TaggedRow::default()
                };
                resources.insert(subject.clone(), resource.try_into()?);
            }
            let kind = ChangeKind::parse(&required(row.kind)?);
            let change = Change { revision: Revision(revision), kind, subject };
            changes.insert((revision, row.ordinal), (change, (audience(row.audience), required(row.at)?)));
        }
        let (changes, audiences): (Vec<_>, _) = changes.into_values().unzip();
        let mut resources: Vec<_> = resources.into_values().collect();
        join(&mut resources, parts.into_values().collect());
        if is_sourced || !ChangedResources::suffice(&changes, &resources) {
            return Ok(None);
        }
        Ok(Some(ChangedResources { head, changes, audiences, resources }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangedResources, MAX_CHANGES};
    use crate::model::scope::{Change, ChangeKind, Revision};

    fn changes(kind: ChangeKind, count: usize) -> Vec<Change> {
        let change = |at: usize| Change {
            revision: Revision(at.try_into().unwrap()),
            kind,
            subject: "file:///a".to_owned(),
        };
        (0..count).map(change).collect()
    }

    #[test]
    fn few_changes_of_resources_alone_suffice() {
        let sufficing: Vec<_> = ChangeKind::ALL
            .iter()
            .filter(|kind| ChangedResources::suffice(&changes(**kind, MAX_CHANGES), &[]))
            .map(|kind| kind.as_str())
            .collect();
        let of_resources = ["resource_added", "resource_removed", "resource_defined", "resource_contents"];
        assert_eq!(sufficing, of_resources);
        assert!(!ChangedResources::suffice(&changes(ChangeKind::ResourceAdded, MAX_CHANGES + 1), &[]));
        assert!(!ChangedResources::suffice(&changes(ChangeKind::Unknown, 1), &[]));
        assert!(ChangedResources::suffice(&[], &[]));
    }
}
