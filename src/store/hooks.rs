//! Inbound webhooks, and the messages that were counted.

use time::OffsetDateTime;
use uri_template::UriTemplate;
use uuid::Uuid;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::audience::Audience;
use crate::model::connection::Sealed;
use crate::model::hook::{Hook, HookSubject};
use crate::model::ids::{AgentId, AgentRef, HookId, ResourceUri, Slug, TenantId};
use crate::model::label::Labels;
use crate::model::scope::Revision;

/// After how many templates other tasks run.
const YIELD_EVERY: usize = 64;

struct Row {
    uid: Uuid,
    tenant: Uuid,
    agent: Uuid,
    uris: Vec<String>,
    mount: Option<String>,
    key_id: String,
    sealed: Vec<u8>,
    created_at: OffsetDateTime,
    revision: i64,
}

impl TryFrom<Row> for Hook {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unreadable = || StoreError::Unreadable("hook");
        let uri = |uri: &String| ResourceUri::parse(uri).map_err(|_| unreadable());
        let subject = match row.mount {
            Some(name) => HookSubject::Mount(Slug::parse(&name).map_err(|_| unreadable())?),
            None => HookSubject::Resources(row.uris.iter().map(uri).collect::<Result<_, _>>()?),
        };
        Ok(Self {
            uid: HookId(row.uid),
            agent: AgentRef { tenant: TenantId(row.tenant), uid: AgentId(row.agent) },
            subject,
            sealed: Sealed { key: row.key_id, bytes: row.sealed },
            created_at: row.created_at,
            revision: Revision(row.revision),
        })
    }
}

impl Store {
    /// Reads a hook of an agent that is not deleted, with the slug of the agent.
    pub async fn hook(&self, uid: HookId) -> Result<Option<(Hook, String)>, StoreError> {
        // Not `is null`, for which a partial index would be read from end to end (ADR 0022).
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    "select h.uid, h.tenant, h.agent, h.uris, h.mount, h.key_id, h.sealed, h.created_at, h.revision, a.slug \
                     from hooks h join agents a on a.tenant = h.tenant and a.uid = h.agent \
                     where h.uid = $1 and coalesce(a.deleted_at, 'infinity') = 'infinity'",
                    uid.0
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let hook = row.map(|row| {
            let (uid, tenant, agent) = (row.uid, row.tenant, row.agent);
            let (uris, mount) = (row.uris, row.mount);
            let (key_id, sealed, created_at, revision) =
                (row.key_id, row.sealed, row.created_at, row.revision);
            let row =
                (Row { uid, tenant, agent, uris, mount, key_id, sealed, created_at, revision }, row.slug);
            Ok((Hook::try_from(row.0)?, row.1))
        });
        hook.transpose()
    }

    /// Lists the hooks of an agent after an id, the oldest first.
    pub async fn hooks(&self, agent: AgentRef, after: Uuid, limit: i64) -> Result<Vec<Hook>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_as!(
                    Row,
                    "select uid, tenant, agent, uris, mount, key_id, sealed, created_at, revision from hooks \
                     where tenant = $1 and agent = $2 and uid > $3 order by uid limit $4",
                    agent.tenant.0,
                    agent.uid.0,
                    after,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(Hook::try_from).collect()
    }
}

impl Write {
    /// The number of hooks of an agent.
    pub async fn hook_count(&mut self, agent: AgentRef) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from hooks where tenant = $1 and agent = $2"#,
            agent.tenant.0,
            agent.uid.0
        );
        Ok(count.fetch_one(self.connection()).await?)
    }

    /// Those of these URIs at which an agent has no resource, in order.
    pub async fn unregistered(
        &mut self,
        agent: AgentRef,
        uris: &[ResourceUri],
    ) -> Result<Vec<String>, StoreError> {
        let uris: Vec<_> = uris.iter().map(ToString::to_string).collect();
        let unknown = sqlx::query_scalar!(
            r#"select named.uri as "uri!" from unnest($3::text[]) with ordinality as named (uri, nth)
            where not exists (
                select from resources r where r.tenant = $1 and r.agent = $2 and r.uri = named.uri
            ) order by nth"#,
            agent.tenant.0,
            agent.uid.0,
            &uris,
        );
        Ok(unknown.fetch_all(self.connection()).await?)
    }

    /// The callers to whom mounts and templates of an agent serve each of these URIs, if any does.
    pub async fn served(
        &mut self,
        agent: AgentRef,
        uris: &[String],
    ) -> Result<Vec<Option<Audience>>, StoreError> {
        let mut served = vec![None; uris.len()];
        if uris.is_empty() {
            return Ok(served);
        }
        let mut serve = |labels: &Labels, serves: &dyn Fn(&str) -> bool| {
            for (uri, audience) in uris.iter().zip(&mut served) {
                if serves(uri) {
                    let also = Audience::of(labels);
                    *audience = Some(audience.take().map_or(also.clone(), |known| known.or(also)));
                }
            }
        };
        for mount in self.mounts(agent).await? {
            serve(&mount.labels, &|uri| mount.path_of(uri).is_some());
        }
        let templates = self.labelled_templates(agent).await?;
        for (number, (template, labels, is_sourced)) in templates.into_iter().enumerate() {
            if number % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
            let Ok(template) = UriTemplate::parse(&template) else { continue };
            let matches = if is_sourced { UriTemplate::matches_any_text } else { UriTemplate::matches };
            serve(&labels, &|uri| matches(&template, uri).is_some());
        }
        Ok(served)
    }

    /// The resource templates of an agent, with their labels.
    async fn labelled_templates(
        &mut self,
        agent: AgentRef,
    ) -> Result<Vec<(String, Labels, bool)>, StoreError> {
        let rows = sqlx::query!(
            "select uri_template, nullif(labels, '{}') as labels, place is not null as \"is_sourced!\" from templates \
             where tenant = $1 and agent = $2",
            agent.tenant.0,
            agent.uid.0,
        )
        .fetch_all(self.connection())
        .await?;
        let labels = |row: Option<Vec<String>>| super::columns::labels(row.as_deref());
        rows.into_iter().map(|row| Ok((row.uri_template, labels(row.labels)?, row.is_sourced))).collect()
    }

    /// Inserts a hook, or replaces its encrypted secret.
    pub async fn put_hook(&mut self, hook: &Hook) -> Result<(), StoreError> {
        let uris: Vec<_> = hook.subject.uris().iter().map(ToString::to_string).collect();
        sqlx::query!(
            "insert into hooks (uid, tenant, agent, uris, mount, key_id, sealed, created_at, revision) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             on conflict (uid) do update set key_id = excluded.key_id, sealed = excluded.sealed",
            hook.uid.0,
            hook.agent.tenant.0,
            hook.agent.uid.0,
            &uris,
            hook.subject.mount().map(Slug::as_str),
            hook.sealed.key,
            hook.sealed.bytes,
            hook.created_at,
            hook.revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Deletes a hook; returns whether it existed.
    pub async fn delete_hook(&mut self, uid: HookId) -> Result<bool, StoreError> {
        let done = sqlx::query!("delete from hooks where uid = $1", uid.0).execute(self.connection()).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Reads hooks after an id whose secret is not encrypted under this key.
    pub async fn hooks_of_other_keys(
        &mut self,
        key: &str,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<Hook>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            "select uid, tenant, agent, uris, mount, key_id, sealed, created_at, revision from hooks \
             where key_id <> $1 and uid > $2 order by uid limit $3",
            key,
            after,
            limit,
        )
        .fetch_all(self.connection())
        .await?;
        rows.into_iter().map(Hook::try_from).collect()
    }

    /// Counts a message of a hook, unless it was counted since `since`; returns whether it is counted now. Forgets older
    /// messages of the hook.
    pub async fn count_message(
        &mut self,
        hook: HookId,
        message: &str,
        now: OffsetDateTime,
        since: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        sqlx::query!("delete from hook_messages where hook = $1 and received_at < $2", hook.0, since)
            .execute(self.connection())
            .await?;
        let done = sqlx::query!(
            "insert into hook_messages (hook, message, received_at) \
             select uid, $2, $3 from hooks where uid = $1 on conflict do nothing",
            hook.0,
            message,
            now
        )
        .execute(self.connection())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Records that resources changed, without new content; returns those that exist, with their labels.
    pub async fn touch_resources(
        &mut self,
        agent: AgentRef,
        uris: &[ResourceUri],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<Vec<(String, Labels)>, StoreError> {
        let uris: Vec<_> = uris.iter().map(ToString::to_string).collect();
        let rows = sqlx::query!(
            r#"update resources set revision = $4, last_modified = $5
            where tenant = $1 and agent = $2 and uri = any($3) returning uri, nullif(labels, '{}') as labels"#,
            agent.tenant.0,
            agent.uid.0,
            &uris,
            revision.0,
            now,
        )
        .fetch_all(self.connection())
        .await?;
        let labels = |row: Option<Vec<String>>| super::columns::labels(row.as_deref());
        rows.into_iter().map(|row| Ok((row.uri, labels(row.labels)?))).collect()
    }
}
