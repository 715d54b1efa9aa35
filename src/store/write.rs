//! A write transaction: locks the scopes it changes, in the order gateway, tenant, agent, session, so that no two writes
//! deadlock.

use sqlx::PgConnection;
use uuid::Uuid;

use super::audit::entry::Entry;
pub use super::audit::entry::WriteSummary;
use super::audit::outbox::OutboxRow;
use super::batch::batches;
use super::columns::joined;
use super::pooled_connection::PooledConnection;
use super::{Store, StoreError};
use crate::model::audience::Audience;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::system::System;

/// A transaction that one write after the other changes scopes in. Dropping it without [`commit`](Self::commit) rolls it
/// back.
#[derive(Debug)]
pub struct Transaction(PooledConnection);

/// A write in a transaction. Dropping it rolls the transaction back.
#[derive(Debug)]
pub struct Write {
    pooled: PooledConnection,
    /// Whether the transaction may be aborted, or contain a part of this write.
    dirty: bool,
    /// The size of the definitions written, in bytes.
    bytes: usize,
    system: System,
    scopes: Vec<LockedScope>,
    summary: Option<WriteSummary>,
    /// The call that the write belongs to, until its audit row is written.
    audited: Option<AuditedWrite>,
    entry: Option<Entry>,
}

/// A write that its transaction contains.
#[derive(Debug)]
pub struct Written {
    /// The new revisions.
    pub revisions: Vec<(Scope, Revision)>,
    /// The audit row, if the write belongs to a call.
    pub entry: Option<Entry>,
    /// The size of the definitions written, in bytes.
    pub bytes: usize,
}

#[derive(Debug)]
struct LockedScope {
    scope: Scope,
    next: Revision,
    changes: Vec<NewChange>,
    /// How many of the changes are logged.
    logged: usize,
}

/// A change to be committed.
#[derive(Debug)]
pub struct NewChange {
    /// What is changed.
    pub kind: ChangeKind,
    /// The subject, as in [`Change`](crate::model::scope::Change).
    pub subject: String,
    /// The callers whom it concerns.
    audience: Audience,
}

/// The rows that log a write, one array per column: its changes, which raise the heads, and its audit row.
#[derive(Debug, Default)]
pub struct Log<'w> {
    pub(super) scopes: Vec<Uuid>,
    pub(super) revisions: Vec<i64>,
    pub(super) ordinals: Vec<i32>,
    pub(super) kinds: Vec<&'static str>,
    pub(super) subjects: Vec<&'w str>,
    pub(super) audiences: Vec<Option<String>>,
    pub(super) audited: Option<&'w OutboxRow>,
}

/// A change with its scope, revision and ordinal.
type Row<'w> = (Scope, Revision, i32, &'w NewChange);

impl<'w> Log<'w> {
    fn of(rows: &[Row<'w>], audited: Option<&'w OutboxRow>) -> Self {
        Self {
            scopes: rows.iter().map(|(scope, ..)| scope.0).collect(),
            revisions: rows.iter().map(|(_, revision, ..)| revision.0).collect(),
            ordinals: rows.iter().map(|(_, _, ordinal, _)| *ordinal).collect(),
            kinds: rows.iter().map(|(.., change)| change.kind.as_str()).collect(),
            subjects: rows.iter().map(|(.., change)| change.subject.as_str()).collect(),
            audiences: rows.iter().map(|(.., change)| change.audience.labels().map(joined)).collect(),
            audited,
        }
    }
}

/// A statement that logs a write: its rows are `$1` to `$9`. It begins with other changes to avoid round trips for them,
/// each a table expression with a comma after it.
macro_rules! logged {
    ([$($changes:literal),*], $log:expr, $($argument:expr),* $(,)?) => {
        sqlx::query!(
            "with " $(+ $changes)* + "written as (
                insert into changes (scope, revision, ordinal, kind, subject, audience)
                select new.scope, new.revision, new.ordinal, new.kind, new.subject, string_to_array(new.audience, ' ')
                from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::text[], $5::text[], $9::text[])
                as new (scope, revision, ordinal, kind, subject, audience)
                returning scope, revision, ordinal
            ),
            audited as (
                insert into audit_outbox (id, version, event)
                select $6::uuid, $7::smallint, $8::bytea where $6 is not null
            )
            update heads set revision = written.revision from written
            where heads.scope = written.scope and written.ordinal = 0",
            &$log.scopes,
            &$log.revisions,
            &$log.ordinals,
            &$log.kinds as &[&str],
            &$log.subjects as &[&str],
            $log.audited.map(|row| row.id),
            crate::model::audit::encoding::VERSION,
            $log.audited.map(|row| row.event.as_slice()),
            &$log.audiences as &[Option<String>],
            $($argument),*
        )
    };
}
pub(super) use logged;

impl Store {
    /// Begins a transaction for writes.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(Transaction(self.transaction("begin").await?))
    }
}

impl Transaction {
    /// Begins a write that belongs to a call, if any.
    pub fn write(self, audited: &AuditedWrite, system: &System) -> Write {
        Write {
            pooled: self.0,
            dirty: false,
            bytes: 0,
            system: system.clone(),
            scopes: Vec::new(),
            summary: None,
            audited: Some(audited.clone()),
            entry: None,
        }
    }

    /// Commits.
    ///
    /// # Errors
    /// [`StoreError`]; if the connection is lost during the commit, it is not known whether it took place.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.0.end("commit").await
    }

    /// Rolls back. Dropping the transaction instead closes its connection.
    pub async fn roll_back(self) -> Result<(), StoreError> {
        self.0.end("rollback").await
    }
}

impl Write {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.dirty = true;
        self.pooled.connection()
    }

    /// Whether the transaction contains nothing of this write and can be continued: at most definitions were read.
    pub fn is_clean(&self) -> bool {
        !self.dirty
    }

    /// Records that the statements so far have changed nothing and have not failed.
    pub(super) fn set_clean(&mut self) {
        self.dirty = false;
    }

    /// Adds to the size of the definitions written.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
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
        self.scopes.push(LockedScope { scope, next, changes: Vec::new(), logged: 0 });
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

    /// Records a change of a locked scope that concerns everybody.
    pub fn change(&mut self, scope: Scope, kind: ChangeKind, subject: impl Into<String>) {
        self.change_for(Audience::Everybody, scope, kind, subject);
    }

    /// Records a change of a locked scope.
    pub fn change_for(
        &mut self,
        audience: Audience,
        scope: Scope,
        kind: ChangeKind,
        subject: impl Into<String>,
    ) {
        if let Some(locked) = self.scopes.iter_mut().find(|locked| locked.scope == scope) {
            locked.changes.push(NewChange { kind, subject: subject.into(), audience });
        }
    }

    /// Sets the summary for the audit row.
    pub fn set_summary(&mut self, summary: WriteSummary) {
        self.summary = Some(summary);
    }

    /// The changes to be committed, by scope, with its new revision.
    pub fn changes(&self) -> impl Iterator<Item = (Scope, Revision, &[NewChange])> {
        self.scopes.iter().map(|locked| (locked.scope, locked.next, locked.changes.as_slice()))
    }

    /// Whether there is anything to commit.
    pub fn has_changes(&self) -> bool {
        self.scopes.iter().any(|locked| !locked.changes.is_empty())
    }

    /// Ends the write; its transaction contains it. The changes must be [logged](Self::log).
    pub fn finish(self) -> (Transaction, Written) {
        let changed = self.scopes.into_iter().filter(|locked| !locked.changes.is_empty());
        let revisions = changed.map(|locked| (locked.scope, locked.next)).collect();
        (Transaction(self.pooled), Written { revisions, entry: self.entry, bytes: self.bytes })
    }

    /// Writes the changes that are not logged yet, and the audit row with the first of them, and raises the heads of the
    /// changed scopes.
    ///
    /// # Errors
    /// [`StoreError`]; [`Fault::Internal`] if the write belongs to a call and has no summary.
    pub async fn log(&mut self) -> Result<(), Fault> {
        let (connection, rows, mut audited) = self.unlogged()?;
        for batch in batches(&rows, |(.., change)| change.subject.len()) {
            let log = Log::of(batch, audited.take());
            logged!([], log,).execute(&mut *connection).await.map_err(StoreError::from)?;
        }
        Ok(())
    }

    /// The connection for a statement that also logs the changes so far.
    pub(super) fn log_with(&mut self) -> Result<(&mut PgConnection, Log<'_>), Fault> {
        let (connection, rows, audited) = self.unlogged()?;
        Ok((connection, Log::of(&rows, audited)))
    }

    /// The changes that are not logged yet, which count as logged from now on, and the audit row unless it is written.
    fn unlogged(&mut self) -> Result<(&mut PgConnection, Vec<Row<'_>>, Option<&OutboxRow>), Fault> {
        let Self { pooled, dirty, system, scopes, summary, audited, entry, .. } = self;
        *dirty = true;
        let mut rows = Vec::new();
        for locked in scopes {
            let logged = std::mem::replace(&mut locked.logged, locked.changes.len());
            let changes = (0_i32..).zip(&locked.changes).skip(logged);
            rows.extend(changes.map(|(ordinal, change)| (locked.scope, locked.next, ordinal, change)));
        }
        let first = if rows.is_empty() { None } else { audited.take() };
        let row = match first {
            Some(audited) => {
                *entry = Entry::of(&audited, summary.take(), system)?;
                entry.as_ref().map(|entry| &entry.row)
            }
            None => None,
        };
        Ok((pooled.connection(), rows, row))
    }
}
