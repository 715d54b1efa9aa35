//! The resources that changed last, as every replica with the agent in memory reads them after most writes.
//!
//! This join takes PostgreSQL less than two thirds of the time of the union of [`super::agent_state`], which is prepared to read
//! definitions of every kind. It repeats a definition for each change and each part of it, so both are few. The changes
//! themselves tell the head and that they are complete, so no other table is read.

use std::collections::BTreeMap;

use sqlx::PgExecutor;
use time::OffsetDateTime;

use super::changes::audience;
use super::resources::join;
use super::tagged_rows::{TaggedRow, required};
use super::{Store, StoreError};
use crate::model::changed_resources::{ChangedResources, MAX_CHANGES};
use crate::model::ids::AgentRef;
use crate::model::scope::{Change, ChangeKind, Head, Revision};
use crate::model::system::{FailPoint, System};

/// A change, and the resource that it concerns with one of its parts; a single row of nothing if there are no changes.
#[derive(Default)]
pub(super) struct ChangedRow {
    changed: Option<i64>,
    ordinal: Option<i32>,
    kind: Option<String>,
    subject: Option<String>,
    audience: Option<Vec<String>>,
    at: Option<OffsetDateTime>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    labels: Option<Vec<String>>,
    is_sourced: bool,
    revision: Option<i64>,
    last_modified: Option<OffsetDateTime>,
    part: Option<i32>,
    part_uri: Option<String>,
    part_mime_type: Option<String>,
    part_meta: Option<String>,
    part_kind: Option<String>,
    hash: Option<Vec<u8>>,
    size: Option<i64>,
}

impl Store {
    /// Reads an agent's changes after a revision and the resources that they concern; `None` if there are none, more than four,
    /// or not all of them any more, or one of them concerns something else, such as the files of a mount, content of a connection,
    /// or a resource with several parts. Reads nothing if the last probe has read this, up to `wanted` at least.
    pub async fn changed_resources(
        &self,
        agent: AgentRef,
        (after, wanted): (Revision, Revision),
        system: &System,
    ) -> Result<Option<ChangedResources>, StoreError> {
        if let Some(prefetched) = self.prefetched.take((agent, after), wanted) {
            return Ok(Some(prefetched));
        }
        let rows = self.read(async |connection| changed_rows(connection, agent, after, None).await).await?;
        system.pause(FailPoint::SnapshotBetweenReads).await;
        changes_of_rows(rows, after)
    }
}

/// Reads what [`ChangedResources`] are made of. Shows a name as the `application_name` of the connection in the same
/// statement.
pub(super) async fn changed_rows(
    connection: impl PgExecutor<'_>,
    agent: AgentRef,
    after: Revision,
    shown: Option<&str>,
) -> Result<Vec<ChangedRow>, sqlx::Error> {
    // Each URI is looked up by its whole key, in subqueries that are not flattened: the database expects few rows of an agent
    // and would rather read all of them.
    sqlx::query_as!(
        ChangedRow,
        r#"select c.revision as "changed?", c.ordinal as "ordinal?",
            c.kind as "kind?", c.subject as "subject?", c.audience as "audience?", c.at as "at?",
            d.name as "name?", d.title, d.description, d.mime_type, d.annotations, d.icons, d.meta,
            nullif(d.labels, '{}') as labels, d.connection is not null as "is_sourced!",
            d.revision as "revision?", d.last_modified as "last_modified?",
            p.ordinal as "part?", p.part_uri, p.mime_type as part_mime_type, p.meta as part_meta,
            p.kind as "part_kind?", p.hash as "hash?", p.size as "size?"
        from (
            select case when $5::text is not null then set_config('application_name', $5, false) end as shown
        ) s
        left join (
            select revision, ordinal, kind, subject, audience, at from changes
            where scope = $2 and revision > $3 order by revision, ordinal limit $4
        ) c on true
        left join lateral (
            select * from resources where tenant = $1 and agent = $2 and uri = c.subject offset 0
        ) d on true
        left join lateral (
            select * from resource_contents where tenant = $1 and agent = $2 and uri = c.subject limit 2
        ) p on true"#,
        agent.tenant.0,
        agent.uid.0,
        after.0,
        i64::try_from(MAX_CHANGES + 1).unwrap_or(i64::MAX),
        shown,
    )
    .fetch_all(connection)
    .await
}

/// The changes after a revision that were read; `None` for what [`Store::changed_resources`] does not read.
pub(super) fn changes_of_rows(
    rows: Vec<ChangedRow>,
    after: Revision,
) -> Result<Option<ChangedResources>, StoreError> {
    let mut revisions = rows.iter().filter_map(|row| row.changed);
    // Revisions have no gap, and each has changes. Otherwise some are pruned, or the database was set back.
    let last = revisions.try_fold(after.0, |last, next| (next <= last + 1).then(|| next.max(last)));
    let Some(head) = last.filter(|last| *last > after.0) else { return Ok(None) };
    let head = Head { revision: Revision(head), floor: after };
    let is_sourced = rows.iter().any(|row| row.is_sourced);
    let (mut changes, mut resources, mut parts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for row in rows {
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

#[cfg(test)]
mod tests {
    use super::{ChangedRow, changes_of_rows};
    use crate::model::scope::Revision;

    #[test]
    fn changes_are_complete_if_no_revision_is_missing() {
        let row = |changed| ChangedRow {
            changed: Some(changed),
            ordinal: Some(0),
            kind: Some("resource_touched".to_owned()),
            ..ChangedRow::default()
        };
        let head = |revisions: &[i64]| {
            let rows = revisions.iter().copied().map(row).collect();
            let read = changes_of_rows(rows, Revision(7)).unwrap()?;
            assert_eq!(read.head.floor, Revision(7));
            Some(read.head.revision.0)
        };
        assert_eq!(head(&[8]), Some(8));
        assert_eq!(head(&[8, 8, 9]), Some(9), "two changes of one revision");
        assert_eq!(head(&[9]), None, "pruned");
        assert_eq!(head(&[8, 10]), None);
        assert_eq!(head(&[]), None);
        assert!(changes_of_rows(vec![ChangedRow::default()], Revision(7)).unwrap().is_none());
    }
}
