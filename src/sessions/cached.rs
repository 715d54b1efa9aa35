//! A session as it is cached.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::last_use::{LastUse, SessionUses};
use crate::cache::Invalidate;
use crate::identity::grant::Caller;
use crate::model::allocated::{allocated, behind_arc};
use crate::model::ids::PrincipalId;
use crate::model::scope::Change;
use crate::model::session::{ResourceSubscription, Session};
use crate::store::sessions::StoredSession;

/// The facts of one session. Every change of the session may be its end, so each invalidates them.
#[derive(Debug, Default)]
pub struct SessionFacts(pub(super) Option<Arc<CachedSession>>);

impl Invalidate for SessionFacts {
    fn invalidate(&mut self, _: &Change) {
        self.0 = None;
    }

    fn heap(&self) -> usize {
        self.0.as_ref().map_or(0, |cached| behind_arc(size_of::<CachedSession>()) + weight(&cached.session))
    }
}

/// The memory of a session, with the time of its last use.
fn weight(session: &Session) -> usize {
    let texts = [&session.version, &session.client_name, &session.client_version];
    let uris = session.subscriptions.iter().map(|subscribed| behind_arc(subscribed.uri.as_str().len()));
    behind_arc(size_of::<Session>())
        + behind_arc(size_of::<LastUse>())
        + texts.iter().map(|text| allocated(text.len())).sum::<usize>()
        + allocated(session.subscriptions.capacity() * size_of::<ResourceSubscription>())
        + uris.sum::<usize>()
}

/// A session in memory.
#[derive(Debug)]
pub(super) struct CachedSession {
    pub(super) session: Arc<Session>,
    hash: [u8; 32],
    pub(super) last_use: Arc<LastUse>,
}

impl CachedSession {
    pub(super) fn new(stored: StoredSession, uses: &SessionUses) -> Arc<Self> {
        let last = uses.of(stored.session.uid, stored.used_at);
        Arc::new(Self { session: Arc::new(stored.session), hash: stored.hash, last_use: last })
    }

    /// Whether a caller that presents an id with this hash opened the session.
    pub(super) fn belongs_to(&self, caller: &Caller, hash: &[u8; 32]) -> bool {
        bool::from(self.hash.ct_eq(hash))
            && self.session.agent == caller.agent
            && self.session.principal == principal_of(caller)
    }
}

/// The principal of a caller's credential: the same for a key and those that replaced it by rotation.
pub(super) fn principal_of(caller: &Caller) -> Option<PrincipalId> {
    caller.credential().map(|credential| credential.principal)
}
