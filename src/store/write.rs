//! A write transaction: locks the scopes it changes, in the order gateway, tenant, agent, session, so that no two writes
//! deadlock.

use sqlx::PgConnection;

use super::audit::outbox::OutboxRow;
use super::batch::batches;
use super::lease::Lease;
use super::{Store, StoreError};
use crate::model::audit::encoding::VERSION;
use crate::model::audit::event::ChangeHashes;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::{ChangeKind, Revision, Scope};

/// A transaction that changes scopes. Dropping it without [`commit`](Write::commit) rolls it back.
#[derive(Debug)]
pub struct Write {
    lease: Lease,
    scopes: Vec<LockedScope>,
    summary: Option<WriteSummary>,
}

/// Summary of a write, for its audit row.
#[derive(Debug)]
pub struct WriteSummary {
    /// The object that was changed.
    pub subject: String,
    /// The revision of the change.
    pub revision: Revision,
    /// Whether the object is new.
    pub created: bool,
    /// The tenant of the object.
    pub tenant: Option<TenantId>,
    /// The agent of the object.
    pub agent: Option<AgentId>,
    /// Hashes before and after.
    pub difference: ChangeHashes,
}

#[derive(Debug)]
struct LockedScope {
    scope: Scope,
    next: Revision,
    changes: Vec<(ChangeKind, String)>,
}

impl Store {
    /// Begins a write.
    pub async fn write(&self) -> Result<Write, StoreError> {
        Ok(Write { lease: self.transaction("begin").await?, scopes: Vec::new(), summary: None })
    }
}

impl Write {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.lease.connection()
    }

    /// Locks a scope and returns the revision that this write will give it; `None` if it has no head.
    ///
    /// Later reads see the newest committed state of the scope, since every write to it holds this lock.
    pub async fn lock(&mut self, scope: Scope) -> Result<Option<Revision>, StoreError> {
        let next = sqlx::query_scalar!(
            r#"select revision + 1 as "next!" from heads where scope = $1 for no key update"#,
            scope.0
        )
        .fetch_optional(self.connection())
        .await?
        .map(Revision);
        if let Some(next) = next {
            self.add_locked(scope, next);
        }
        Ok(next)
    }

    /// Records that a scope is locked and that this write will give it the revision `next`.
    pub(super) fn add_locked(&mut self, scope: Scope, next: Revision) {
        self.scopes.push(LockedScope { scope, next, changes: Vec::new() });
    }

    /// Creates a scope whose revisions continue after `last`, and locks it.
    pub async fn create(&mut self, scope: Scope, last: Revision) -> Result<Revision, StoreError> {
        sqlx::query!("insert into heads (scope, revision, floor) values ($1, $2, $2)", scope.0, last.0)
            .execute(self.connection())
            .await?;
        let next = Revision(last.0 + 1);
        self.add_locked(scope, next);
        Ok(next)
    }

    /// Records a change of a locked scope.
    pub fn change(&mut self, scope: Scope, kind: ChangeKind, subject: impl Into<String>) {
        if let Some(locked) = self.scopes.iter_mut().find(|locked| locked.scope == scope) {
            locked.changes.push((kind, subject.into()));
        }
    }

    /// Sets the summary for the audit row.
    pub fn set_summary(&mut self, summary: WriteSummary) {
        self.summary = Some(summary);
    }

    /// Takes the summary.
    pub fn take_summary(&mut self) -> Option<WriteSummary> {
        self.summary.take()
    }

    /// The changes to be committed, by scope, with its new revision.
    pub fn changes(&self) -> impl Iterator<Item = (Scope, Revision, &[(ChangeKind, String)])> {
        self.scopes.iter().map(|locked| (locked.scope, locked.next, locked.changes.as_slice()))
    }

    /// Whether there is anything to commit.
    pub fn has_changes(&self) -> bool {
        self.scopes.iter().any(|locked| !locked.changes.is_empty())
    }

    /// Raises the heads of the changed scopes, writes their changes and an audit row, and commits. Returns
    /// the new revisions.
    ///
    /// # Errors
    /// [`StoreError`]; if the connection is lost during the commit, it is not known whether the write was
    /// committed.
    pub async fn commit(mut self, audited: Option<&OutboxRow>) -> Result<Vec<(Scope, Revision)>, StoreError> {
        self.scopes.retain(|locked| !locked.changes.is_empty());
        self.log(audited).await?;
        self.lease.end("commit").await?;
        Ok(self.scopes.into_iter().map(|locked| (locked.scope, locked.next)).collect())
    }

    /// Rolls back. Dropping the write instead closes its connection.
    pub async fn roll_back(self) -> Result<(), StoreError> {
        self.lease.end("rollback").await
    }

    async fn log(&mut self, mut audited: Option<&OutboxRow>) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        for locked in &mut self.scopes {
            let changes = (0_i32..).zip(std::mem::take(&mut locked.changes));
            rows.extend(changes.map(|(ordinal, change)| (locked.scope, locked.next, ordinal, change)));
        }
        for batch in batches(&rows, |(.., (_, subject))| subject.len()) {
            let scopes: Vec<_> = batch.iter().map(|(scope, ..)| scope.0).collect();
            let revisions: Vec<_> = batch.iter().map(|(_, revision, ..)| revision.0).collect();
            let ordinals: Vec<_> = batch.iter().map(|(_, _, ordinal, _)| *ordinal).collect();
            let kinds: Vec<_> = batch.iter().map(|(.., (kind, _))| kind.as_str()).collect();
            let subjects: Vec<_> = batch.iter().map(|(.., (_, subject))| subject.as_str()).collect();
            // In the same statement, to avoid a round trip.
            let audited = audited.take();
            sqlx::query!(
                "with written as (
                    insert into changes (scope, revision, ordinal, kind, subject)
                    select * from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::text[], $5::text[])
                    returning scope, revision, ordinal
                ),
                audited as (
                    insert into audit_outbox (id, version, event) 
                    select $6::uuid, $7::smallint, $8::bytea where $6 is not null
                )
                update heads set revision = written.revision from written
                where heads.scope = written.scope and written.ordinal = 0",
                &scopes,
                &revisions,
                &ordinals,
                &kinds as &[&str],
                &subjects as &[&str],
                audited.map(|row| row.id),
                VERSION,
                audited.map(|row| row.event.as_slice()),
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}
