//! How many streams are open, with each credential and altogether.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::client_address::ClientAddress;
use crate::model::fault::{Fault, LimitScope, Limited};
use crate::model::ids::{AgentId, KeyId, SessionUid};
use crate::registry::access::Caller;

/// Whoever is refused may try again when one of his streams has ended, whenever that may be.
const RETRY: Duration = Duration::from_secs(1);

/// The streams of this replica.
#[derive(Debug)]
pub(super) struct Streams {
    open: Arc<DashMap<Counted, usize>>,
    per_holder: usize,
    places: Arc<Semaphore>,
    eras: [Arc<EraStreams>; 2],
}

/// The streams of an era.
#[derive(Debug, Default)]
struct EraStreams {
    open: AtomicUsize,
    told: AtomicU64,
}

/// The streams of an era, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStats {
    /// The era, as it is told.
    pub era: &'static str,
    /// How many are open.
    pub open: usize,
    /// How many changes were told on them so far.
    pub told: u64,
}

/// What is counted: the streams of a key, or of somebody without one, and those of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counted {
    Key(KeyId),
    /// Somebody without a key, at a public agent.
    Anybody(AgentId, ClientAddress),
    Session(SessionUid),
}

/// The right to one stream, until dropped.
#[derive(Debug)]
pub(super) struct StreamPlace {
    open: Arc<DashMap<Counted, usize>>,
    counted: [Option<Counted>; 2],
    era: Arc<EraStreams>,
    _place: OwnedSemaphorePermit,
}

impl StreamPlace {
    /// A change was told on the stream.
    pub(super) fn told(&self) {
        self.era.told.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.era.open.fetch_sub(1, Ordering::Relaxed);
        for counted in self.counted.into_iter().flatten() {
            if let Entry::Occupied(mut entry) = self.open.entry(counted) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}

impl Streams {
    pub(super) fn new(per_holder: usize, altogether: usize) -> Self {
        let places = Arc::new(Semaphore::new(altogether));
        Self { open: Arc::default(), per_holder, places, eras: Default::default() }
    }

    pub(super) fn stats(&self) -> [StreamStats; 2] {
        let [legacy, modern] = &self.eras;
        [("legacy", legacy), ("modern", modern)].map(|(era, streams)| StreamStats {
            era,
            open: streams.open.load(Ordering::Relaxed),
            told: streams.told.load(Ordering::Relaxed),
        })
    }

    /// A place for one more stream. One that takes the place of a session's stream may be one too many until the other
    /// has ended: whoever connects again after a break is not kept out by what broke.
    ///
    /// # Errors
    /// [`Fault::RateLimited`] where the credential has as many as it may; [`Fault::Unavailable`] where the gateway has.
    pub(super) fn take(
        &self,
        caller: &Caller,
        client: ClientAddress,
        session: Option<SessionUid>,
    ) -> Result<StreamPlace, Fault> {
        let (holder, scope) = match &caller.grant {
            Some(grant) => (Counted::Key(grant.credential.key), LimitScope::Key),
            None => (Counted::Anybody(caller.agent, client.network()), LimitScope::Address),
        };
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Fault::Unavailable { retry_after: RETRY })?;
        let session = session.map(Counted::Session);
        let replaces = session.is_some_and(|session| self.open.get(&session).is_some_and(|open| *open == 1));
        let mut open = self.open.entry(holder).or_default();
        if *open >= self.per_holder && !replaces {
            let limited = Limited::Streams(self.per_holder);
            return Err(Fault::RateLimited { scope, limited, retry_after: RETRY });
        }
        *open += 1;
        drop(open);
        if let Some(session) = session {
            *self.open.entry(session).or_default() += 1;
        }
        let [legacy, modern] = &self.eras;
        let era = Arc::clone(if session.is_some() { legacy } else { modern });
        era.open.fetch_add(1, Ordering::Relaxed);
        Ok(StreamPlace { open: Arc::clone(&self.open), counted: [Some(holder), session], era, _place: place })
    }
}
