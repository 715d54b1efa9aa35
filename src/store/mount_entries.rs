//! The files of mounts, as scans found them, and how the scans went.

use time::OffsetDateTime;
use uuid::Uuid;

use super::batch::batches;
use super::columns::labels;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::{AgentId, AgentRef, ConnectionId, Slug, TenantId};
use crate::model::label::Labels;
use crate::model::mount::{MountEntry, MountStatus, TreeId};
use crate::model::scope::Revision;

/// A mount, to be scanned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScannedMount {
    /// The agent.
    pub agent: AgentRef,
    /// Its name.
    pub name: Slug,
    /// What it lists.
    pub tree: TreeId,
    /// Its connection.
    pub connection: ConnectionId,
}

struct MountRow {
    tenant: Uuid,
    agent: Uuid,
    name: String,
    tree: i64,
    connection: Uuid,
    requested: i64,
}

impl Store {
    /// The mounts of all agents, at most `limit` and `of_tenant` of each tenant, each with the revision at which a scan was
    /// last requested. Where there are more, tenants have as many each as there are places for: one with many takes none
    /// from others.
    pub async fn scanned_mounts(
        &self,
        limit: i64,
        of_tenant: i64,
    ) -> Result<Vec<(ScannedMount, Revision)>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_as!(
                    MountRow,
                    "select found.tenant, found.agent, found.name, found.tree, found.connection, found.requested
                    from tenants t cross join lateral (
                        select m.tenant, m.agent, m.name, m.tree, m.connection, m.requested,
                            row_number() over (order by m.agent, m.name) as nth
                        from mounts m join agents a on a.tenant = m.tenant and a.uid = m.agent
                        where m.tenant = t.uid and a.deleted_at is null
                        order by m.agent, m.name limit $2
                    ) found order by found.nth, found.tenant limit $1",
                    limit,
                    of_tenant,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let mount = |row: MountRow| {
            let name = Slug::parse(&row.name).map_err(|_| StoreError::Unreadable("mount"))?;
            let mount = ScannedMount {
                agent: AgentRef { tenant: TenantId(row.tenant), uid: AgentId(row.agent) },
                name,
                tree: TreeId(row.tree),
                connection: ConnectionId(row.connection),
            };
            Ok((mount, Revision(row.requested)))
        };
        rows.into_iter().map(mount).collect()
    }

    /// The revision that last changed what a mount lists, zero before the first scan, and whether a scan has ended; `None` if
    /// it lists something else.
    pub async fn scanned(&self, mount: &ScannedMount) -> Result<Option<(Revision, bool)>, StoreError> {
        let ScannedMount { agent, name, tree, .. } = mount;
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select scanned, state in ('ready', 'degraded') as "is_listed!" from mounts where tenant = $1 and agent = $2 and name = $3 and tree = $4"#,
                    agent.tenant.0,
                    agent.uid.0,
                    name.as_str(),
                    tree.0,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        Ok(row.map(|row| (Revision(row.scanned), row.is_listed)))
    }

    /// Records that a scan of a mount failed, unless it lists something else meanwhile: it is degraded if it was listed
    /// before.
    pub async fn record_failed_scan(
        &self,
        mount: &ScannedMount,
        reason: &str,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let ScannedMount { agent, name, tree, .. } = mount;
        self.run(async |connection| {
            sqlx::query!(
                "update mounts set checked_at = $5, reason = $6,
                state = case when scanned > 0 or state in ('ready', 'degraded') then 'degraded' else 'failed' end
                where tenant = $1 and agent = $2 and name = $3 and tree = $4",
                agent.tenant.0,
                agent.uid.0,
                name.as_str(),
                tree.0,
                now,
                reason,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }

    /// Records how scans of a mount go, unless it lists something else meanwhile.
    pub async fn record_scan(&self, mount: &ScannedMount, status: &MountStatus) -> Result<(), StoreError> {
        let ScannedMount { agent, name, tree, .. } = mount;
        self.run(async |connection| {
            sqlx::query!(
                "update mounts set state = $5, entries = $6, checked_at = coalesce($7, checked_at), reason = $8
                where tenant = $1 and agent = $2 and name = $3 and tree = $4",
                agent.tenant.0,
                agent.uid.0,
                name.as_str(),
                tree.0,
                status.state.as_str(),
                i64::try_from(status.entries).unwrap_or(i64::MAX),
                status.checked_at,
                status.reason,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }
}

impl Write {
    /// Requests a scan of a mount; returns whether the agent has it.
    pub async fn request_scan(
        &mut self,
        agent: AgentRef,
        name: &Slug,
        revision: Revision,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update mounts set requested = $4 where tenant = $1 and agent = $2 and name = $3",
            agent.tenant.0,
            agent.uid.0,
            name.as_str(),
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Sets the revision that last changed what a mount lists. Returns its labels; `None` if another write did so since
    /// `known`, or the mount lists something else.
    pub async fn claim_scan(
        &mut self,
        mount: &ScannedMount,
        known: Revision,
        revision: Revision,
    ) -> Result<Option<Labels>, StoreError> {
        let ScannedMount { agent, name, tree, .. } = mount;
        let claimed = sqlx::query_scalar!(
            "update mounts set scanned = $6
            where tenant = $1 and agent = $2 and name = $3 and tree = $4 and scanned = $5 returning labels",
            agent.tenant.0,
            agent.uid.0,
            name.as_str(),
            tree.0,
            known.0,
            revision.0,
        )
        .fetch_optional(self.connection())
        .await?;
        claimed.map(|stored| labels(Some(&stored))).transpose()
    }

    /// Adds or replaces files of a mount.
    pub async fn put_entries(
        &mut self,
        agent: AgentRef,
        tree: TreeId,
        entries: &[(String, MountEntry)],
    ) -> Result<(), StoreError> {
        for batch in batches(entries, |(path, _)| path.len()) {
            let paths: Vec<_> = batch.iter().map(|(path, _)| path.as_str()).collect();
            let size = |entry: &MountEntry| entry.size.and_then(|size| i64::try_from(size).ok());
            let sizes: Vec<_> = batch.iter().map(|(_, entry)| size(entry)).collect();
            let modified: Vec<_> = batch.iter().map(|(_, entry)| entry.modified).collect();
            let validators: Vec<_> = batch.iter().map(|(_, entry)| &entry.validator[..]).collect();
            let revisions: Vec<_> = batch.iter().map(|(_, entry)| entry.revision.0).collect();
            sqlx::query!(
                "insert into mount_entries (tenant, agent, tree, path, size, modified, validator, revision)
                select $1, $2, $3, new.* from unnest($4::text[], $5::bigint[], $6::timestamptz[], $7::bytea[],
                $8::bigint[]) as new
                on conflict (tenant, agent, tree, path) do update set size = excluded.size,
                modified = excluded.modified, validator = excluded.validator, revision = excluded.revision",
                agent.tenant.0,
                agent.uid.0,
                tree.0,
                &paths as &[&str],
                &sizes as &[Option<i64>],
                &modified as &[OffsetDateTime],
                &validators as &[&[u8]],
                &revisions,
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }

    /// Sets what is listed of a file of a mount, whose content changed; nothing if it is not listed.
    pub async fn touch_entry(
        &mut self,
        (agent, tree, path): (AgentRef, TreeId, &str),
        (size, modified): (u64, OffsetDateTime),
        revision: Revision,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update mount_entries set size = $5, modified = $6, revision = $7
            where tenant = $1 and agent = $2 and tree = $3 and path = $4",
            agent.tenant.0,
            agent.uid.0,
            tree.0,
            path,
            i64::try_from(size).ok(),
            modified,
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Deletes files of a mount.
    pub async fn delete_entries(
        &mut self,
        agent: AgentRef,
        tree: TreeId,
        paths: &[String],
    ) -> Result<(), StoreError> {
        for batch in batches(paths, String::len) {
            sqlx::query!(
                "delete from mount_entries where (tenant, agent, tree, path) in (
                    select $1::uuid, $2::uuid, $3::bigint, unnest($4::text[])
                )",
                agent.tenant.0,
                agent.uid.0,
                tree.0,
                batch,
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}
