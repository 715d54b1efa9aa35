//! A write: one transaction that locks the scopes it changes, in the order gateway, tenant, agent, session.

use sqlx::PgConnection;

use super::audit::outbox::OutboxRow;
use super::batch::batches;
use super::lease::Lease;
use super::{Store, StoreError};
use crate::model::audit::encoding::VERSION;
use crate::model::audit::event::Difference;
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::ContentHash;
use crate::model::scope::{ChangeKind, Revision, Scope};

/// A transaction that changes scopes. Dropped without [`commit`](Write::commit), it has done nothing.
#[derive(Debug)]
pub struct Write {
    lease: Lease,
    scopes: Vec<Locked>,
    told: Option<Told>,
}

/// What a write tells the audit log of itself.
#[derive(Debug)]
pub struct Told {
    /// What was changed.
    pub subject: String,
    /// The revision that did it.
    pub revision: Revision,
    /// Whether it is new.
    pub created: bool,
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// The agent that it belongs to.
    pub agent: Option<AgentId>,
    /// What it was and what it is.
    pub difference: Difference,
}

#[derive(Debug)]
struct Locked {
    scope: Scope,
    next: Revision,
    changes: Vec<(ChangeKind, String)>,
}

/// Something to add or replace.
#[derive(Debug)]
pub struct Put<'n, N> {
    /// As its owner wants it.
    pub new: &'n N,
    /// Where it names other bytes than before: those that it named before, none where it is new.
    pub freed: Option<Vec<ContentHash>>,
}

/// Something to remove.
#[derive(Debug)]
pub struct Removal<'k> {
    /// What it is called.
    pub key: &'k str,
    /// The bytes that it names.
    pub freed: Vec<ContentHash>,
}

impl Store {
    /// Begins a write.
    pub async fn write(&self) -> Result<Write, StoreError> {
        Ok(Write { lease: self.transaction("begin").await?, scopes: Vec::new(), told: None })
    }
}

impl Write {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.lease.connection()
    }

    /// Locks a scope and answers the revision that this write will give it; `None` where it has no head.
    ///
    /// What is read after this is the newest committed state of the scope: whoever writes to it holds this lock.
    pub async fn lock(&mut self, scope: Scope) -> Result<Option<Revision>, StoreError> {
        let next = sqlx::query_scalar!(
            r#"select revision + 1 as "next!" from heads where scope = $1 for no key update"#,
            scope.0
        )
        .fetch_optional(self.connection())
        .await?
        .map(Revision);
        if let Some(next) = next {
            self.locked(scope, next);
        }
        Ok(next)
    }

    /// A scope is locked, and this write will give it the revision `next`.
    pub(super) fn locked(&mut self, scope: Scope, next: Revision) {
        self.scopes.push(Locked { scope, next, changes: Vec::new() });
    }

    /// Makes a scope that continues after `last`, and locks it.
    pub async fn create(&mut self, scope: Scope, last: Revision) -> Result<Revision, StoreError> {
        sqlx::query!("insert into heads (scope, revision, floor) values ($1, $2, $2)", scope.0, last.0)
            .execute(self.connection())
            .await?;
        let next = Revision(last.0 + 1);
        self.locked(scope, next);
        Ok(next)
    }

    /// Records what this write does to a scope that it has locked.
    pub fn change(&mut self, scope: Scope, kind: ChangeKind, subject: impl Into<String>) {
        if let Some(locked) = self.scopes.iter_mut().find(|locked| locked.scope == scope) {
            locked.changes.push((kind, subject.into()));
        }
    }

    /// Tells the audit log what this write does, as a whole.
    pub fn tell(&mut self, told: Told) {
        self.told = Some(told);
    }

    /// What it told.
    pub fn told(&mut self) -> Option<Told> {
        self.told.take()
    }

    /// What is to be committed: the changes of each scope, with its new revision.
    pub fn changes(&self) -> impl Iterator<Item = (Scope, Revision, &[(ChangeKind, String)])> {
        self.scopes.iter().map(|locked| (locked.scope, locked.next, locked.changes.as_slice()))
    }

    /// Whether there is anything to commit.
    pub fn changes_anything(&self) -> bool {
        self.scopes.iter().any(|locked| !locked.changes.is_empty())
    }

    /// Raises the heads of the scopes that changed, writes their changes and a row for the audit log, and commits;
    /// answers the new revisions.
    ///
    /// # Errors
    /// When the connection breaks during the commit, whether it took place is not known.
    pub async fn commit(mut self, audited: Option<&OutboxRow>) -> Result<Vec<(Scope, Revision)>, StoreError> {
        self.scopes.retain(|locked| !locked.changes.is_empty());
        self.log(audited).await?;
        self.lease.settle("commit").await?;
        Ok(self.scopes.into_iter().map(|locked| (locked.scope, locked.next)).collect())
    }

    /// Gives up: nothing was done. A write that is dropped instead costs its connection.
    pub async fn abandon(self) -> Result<(), StoreError> {
        self.lease.settle("rollback").await
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
            // In the same statement: it costs no turn of its own.
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
