//! Sessions: found from memory, for those who opened them.

mod expire;
mod in_use;
mod open;
mod uses;
mod write;

use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::Registry;
use super::access::Caller;
use super::cell::{Cell, Held, cell_of};
use crate::model::fault::Fault;
use crate::model::ids::{PrincipalId, SessionUid};
use crate::model::scope::{Change, Scope};
use crate::model::session::{Session, SessionId, uid_of};
use crate::model::sources::FailPoint;
use crate::store::StoreError;
use crate::store::sessions::StoredSession;

pub(super) use in_use::OpenStreams;
pub use in_use::SessionInUse;
pub use open::{NewSession, OpenedSession};
pub(super) use uses::SessionUses;
use uses::Use;

/// What is held of one session. Every change of it may be about its end, so each makes it forgotten.
#[derive(Debug, Default)]
pub(super) struct HeldSession(Option<Arc<Known>>);

impl Held for HeldSession {
    fn forget(&mut self, _: &Change) {
        self.0 = None;
    }
}

/// A session in memory.
#[derive(Debug)]
pub(super) struct Known {
    session: Arc<Session>,
    hash: [u8; 32],
    last_use: Arc<Use>,
}

impl Known {
    fn new(stored: StoredSession, uses: &SessionUses) -> Arc<Self> {
        let last = uses.of(stored.session.uid, stored.used_at);
        Arc::new(Self { session: Arc::new(stored.session), hash: stored.hash, last_use: last })
    }

    /// Whether this is the session of whoever shows an id with this hash.
    fn belongs_to(&self, caller: &Caller, hash: &[u8; 32]) -> bool {
        bool::from(self.hash.ct_eq(hash))
            && self.session.agent == caller.agent
            && self.session.principal == principal_of(caller)
    }
}

/// Who opens sessions with what the caller shows; a key and those that replaced it are the same.
fn principal_of(caller: &Caller) -> Option<PrincipalId> {
    caller.grant.as_ref().map(|grant| grant.credential.principal)
}

impl Registry {
    /// The caller's session with this id, as new as anything this replica has heard of; a use of it.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] for one that is unknown, ended, idle for too long, or somebody else's.
    pub async fn session(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Session>, Fault> {
        let hash = id.hash();
        let uid = uid_of(&hash);
        let known = self.known_session(uid).await?.ok_or(Fault::SessionNotFound)?;
        if !known.belongs_to(caller, &hash) {
            return Err(Fault::SessionNotFound);
        }
        let now = self.sources.clock.now();
        let known = if known.last_use.is_idle(now, self.limits.session_idle) {
            Box::pin(self.look_for_uses(uid, now)).await?
        } else {
            known
        };
        self.session_uses.note(uid, &known.last_use, now);
        Ok(Arc::clone(&known.session))
    }

    /// The session as new as anything this replica has heard of; `None` where it ended or is gone. No use of it.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] where it is not in memory and the database is away.
    pub async fn session_now(&self, session: SessionUid) -> Result<Option<Arc<Session>>, Fault> {
        Ok(self.known_session(session).await?.map(|known| Arc::clone(&known.session)))
    }

    async fn known_session(&self, session: SessionUid) -> Result<Option<Arc<Known>>, Fault> {
        let cell = self.session_cell(session);
        let found =
            self.find(&cell, |held| held.0.clone(), async || self.load_session(&cell, session).await).await?;
        if found.is_none() {
            // It never comes back, and whoever makes up ids fills no memory.
            self.sessions.remove(&session);
        }
        Ok(found)
    }

    async fn load_session(
        &self,
        cell: &Cell<HeldSession>,
        session: SessionUid,
    ) -> Result<Option<Arc<Known>>, StoreError> {
        cell.load(
            &self.store,
            &self.sources,
            FailPoint::SessionFillRead,
            async |view| {
                Ok(view.session(session).await?.map(|stored| Known::new(stored, &self.session_uses)))
            },
            |held, known| held.0.clone_from(known),
        )
        .await
    }

    /// Reads a session anew that memory takes for idle: another replica may have noted a use.
    async fn look_for_uses(
        &self,
        session: SessionUid,
        now: time::OffsetDateTime,
    ) -> Result<Arc<Known>, Fault> {
        let cell = self.session_cell(session);
        let known = self.fill(async || self.load_session(&cell, session).await).await?;
        let used = known.filter(|known| !known.last_use.is_idle(now, self.limits.session_idle));
        if used.is_none() {
            self.sessions.remove(&session);
        }
        used.ok_or(Fault::SessionNotFound)
    }

    /// Notes that a session is used, as it is by an open stream.
    pub fn keep_session(&self, session: SessionUid) {
        let now = self.sources.clock.now();
        let held = self.sessions.get(&session).and_then(|cell| cell.get_stale(|held| held.0.clone()));
        match held {
            Some(known) => self.session_uses.note(session, &known.last_use, now),
            None => self.session_uses.note(session, &self.session_uses.unknown(now), now),
        }
    }

    fn session_cell(&self, session: SessionUid) -> Arc<Cell<HeldSession>> {
        cell_of(&self.sessions, session, || Cell::new(Scope::from(session)))
    }
}
