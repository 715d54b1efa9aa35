//! Sessions of the protocol revisions before 2026-07-28, available to the principal that opened them.
//!
//! [`Sessions`] finds, opens, changes and ends sessions. A session is a scope of its own, cached by the cache rule
//! ([`crate::cache`]). Sessions that are opened at the same time are written in one commit. The last use of a session is
//! recorded in memory and persisted in batches; a session past the idle timeout ends.

mod cached;
mod changes;
mod holder_counts;
pub mod in_use;
mod last_use;
mod maintenance;
pub mod open;

use std::sync::Arc;
use std::time::Duration;

use self::cached::{CachedSession, SessionFacts};
use self::holder_counts::HolderCounts;
use self::last_use::SessionUses;
use crate::cache::{Cell, CellMap, GroupCommit, KeyedCounts, Loader, MemoryBudget, Writer};
use crate::identity::grant::Caller;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, SessionUid};
use crate::model::session::{Session, SessionHolder, SessionId, uid_of};
use crate::model::system::{FailPoint, Random, System};
use crate::store::sessions::{OpenOutcome, SessionRow};
use crate::store::{Store, StoreError};
use crate::telemetry::RepeatedWork;

/// A holder that has too many sessions with an agent, and the payer of those that it opens.
type Reduction = (Payer, AgentId, SessionHolder);

/// The cells of all sessions in memory.
pub type SessionCells = CellMap<Cell<SessionFacts>>;

/// The bounds of [`Sessions`]. Each has a setting, documented in `config/waggle.toml`.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// The idle timeout.
    pub idle: Duration,
    /// Resources that one session may subscribe to.
    pub subscriptions: usize,
    /// Sessions of one principal, or of one address without a credential, with one agent.
    pub per_principal: u32,
}

/// Finds, opens, changes and ends sessions.
#[derive(Debug)]
pub struct Sessions {
    store: Store,
    system: System,
    loader: Arc<Loader>,
    writer: Arc<Writer>,
    cells: Arc<SessionCells>,
    uses: SessionUses,
    /// The open streams of this replica by session: one, or two while a new stream supersedes the old one.
    open_streams: Arc<KeyedCounts<SessionUid>>,
    limits: SessionLimits,
    counts: HolderCounts,
    /// Sessions to be opened.
    inserts: GroupCommit<Payer, Arc<SessionRow>, OpenOutcome>,
    /// Sessions to be opened of holders that have as many as they may.
    reductions: GroupCommit<Payer, Reduction, Result<(), Fault>>,
    expiry: RepeatedWork,
    writing_uses: RepeatedWork,
}

impl Sessions {
    /// Creates the service over `cells`, which the scope map of `writer` must contain. What else it caches is within `budget`.
    pub fn new(
        (store, system): (Store, System),
        (loader, writer): (Arc<Loader>, Arc<Writer>),
        (cells, budget): (Arc<SessionCells>, &Arc<MemoryBudget>),
        limits: SessionLimits,
    ) -> Self {
        let (uses, open_streams) = (SessionUses::new(limits.idle), Arc::default());
        let (inserts, reductions) =
            (GroupCommit::new(writer.longest_wait()), GroupCommit::new(writer.longest_wait()));
        let (expiry, writing_uses) = <(RepeatedWork, RepeatedWork)>::default();
        Self {
            store,
            system,
            loader,
            writer,
            cells,
            uses,
            open_streams,
            counts: HolderCounts::new(budget, limits.threshold()),
            limits,
            inserts,
            reductions,
            expiry,
            writing_uses,
        }
    }

    /// The source of random bytes.
    pub fn random(&self) -> &dyn Random {
        self.system.random.as_ref()
    }

    /// The current time.
    pub fn now(&self) -> time::OffsetDateTime {
        self.system.clock.now()
    }

    /// The caller's session with this id, at the newest revision known. Records a use.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] for a session that is unknown, ended, past the idle timeout, or another caller's.
    pub async fn find(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Session>, Fault> {
        let hash = id.hash();
        let uid = uid_of(&hash);
        let known = self.known_session(caller.payer(), uid).await?.ok_or(Fault::SessionNotFound)?;
        if !known.belongs_to(caller, &hash) {
            return Err(Fault::SessionNotFound);
        }
        let now = self.system.clock.now();
        let known = if known.last_use.is_idle(now, self.limits.idle) {
            Box::pin(self.reload_uses(caller.payer(), uid, now)).await?
        } else {
            known
        };
        self.uses.note(uid, &known.last_use, now);
        Ok(Arc::clone(&known.session))
    }

    /// The session at the newest revision known; `None` if it ended or is purged. Records no use.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if it is not in memory and the database is unreachable.
    pub async fn current(&self, payer: Payer, session: SessionUid) -> Result<Option<Arc<Session>>, Fault> {
        Ok(self.known_session(payer, session).await?.map(|known| Arc::clone(&known.session)))
    }

    async fn known_session(
        &self,
        payer: Payer,
        session: SessionUid,
    ) -> Result<Option<Arc<CachedSession>>, Fault> {
        let cell = self.cell(session);
        let load = async || self.load_session(&cell, session).await;
        let found = self.loader.find(payer, &cell, |facts| facts.0.clone(), load).await?;
        if found.is_none() {
            // An ended session never becomes valid again, and forged ids must not fill the memory.
            self.cells.remove(session);
        }
        Ok(found)
    }

    async fn load_session(
        &self,
        cell: &Cell<SessionFacts>,
        session: SessionUid,
    ) -> Result<Option<Arc<CachedSession>>, StoreError> {
        let read = async {
            let (revision, stored) = self.store.session(session).await?.unzip();
            Ok((revision, stored.map(|stored| CachedSession::new(stored, &self.uses))))
        };
        let keep = |facts: &mut SessionFacts, known: &_| facts.0.clone_from(known);
        cell.load(&self.system, FailPoint::SessionFillRead, read, keep).await
    }

    /// Reads a session again that is past the idle timeout in memory: another replica may have recorded a use.
    async fn reload_uses(
        &self,
        payer: Payer,
        session: SessionUid,
        now: time::OffsetDateTime,
    ) -> Result<Arc<CachedSession>, Fault> {
        let cell = self.cell(session);
        let known = self.loader.load(payer, async || self.load_session(&cell, session).await).await?;
        let used = known.filter(|known| !known.last_use.is_idle(now, self.limits.idle));
        if used.is_none() {
            self.cells.remove(session);
        }
        used.ok_or(Fault::SessionNotFound)
    }

    /// Records a use of a session, such as that of an open stream.
    pub fn note_use(&self, session: SessionUid) {
        let now = self.system.clock.now();
        let cached = self.cells.get(session).and_then(|cell| cell.get_stale(|facts| facts.0.clone()));
        match cached {
            Some(known) => self.uses.note(session, &known.last_use, now),
            None => self.uses.note(session, &self.uses.unknown(now), now),
        }
    }

    fn cell(&self, session: SessionUid) -> Arc<Cell<SessionFacts>> {
        self.cells.get_or_create(session, None, Cell::new)
    }
}
