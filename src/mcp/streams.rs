//! How many streams are open, with each credential and altogether.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::fault::{Fault, LimitScope};
use crate::model::ids::{AgentId, KeyId};
use crate::registry::access::Caller;

/// Whoever is refused may try again when one of his streams has ended, whenever that may be.
const RETRY: Duration = Duration::from_secs(1);

/// The streams of this replica.
#[derive(Debug)]
pub(super) struct Streams {
    holders: Arc<DashMap<Holder, usize>>,
    per_holder: usize,
    places: Arc<Semaphore>,
}

/// Whose streams are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Key(KeyId),
    /// Somebody without a key, at a public agent.
    Anybody(AgentId, IpAddr),
}

/// The right to one stream, until dropped.
#[derive(Debug)]
pub(super) struct StreamPlace {
    holders: Arc<DashMap<Holder, usize>>,
    holder: Holder,
    _place: OwnedSemaphorePermit,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.holders.entry(self.holder) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl Streams {
    pub(super) fn new(per_holder: usize, altogether: usize) -> Self {
        Self { holders: Arc::default(), per_holder, places: Arc::new(Semaphore::new(altogether)) }
    }

    /// A place for one more stream.
    ///
    /// # Errors
    /// [`Fault::RateLimited`] where the credential has as many as it may; [`Fault::Unavailable`] where the gateway has.
    pub(super) fn take(&self, caller: &Caller, peer: IpAddr) -> Result<StreamPlace, Fault> {
        let (holder, scope) = match &caller.grant {
            Some(grant) => (Holder::Key(grant.credential.key), LimitScope::Key),
            None => (Holder::Anybody(caller.agent, peer), LimitScope::Address),
        };
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Fault::Unavailable { retry_after: RETRY })?;
        let mut open = self.holders.entry(holder).or_default();
        if *open >= self.per_holder {
            return Err(Fault::RateLimited {
                scope,
                policy: "streams",
                quota: self.per_holder,
                retry_after: RETRY,
            });
        }
        *open += 1;
        drop(open);
        Ok(StreamPlace { holders: Arc::clone(&self.holders), holder, _place: place })
    }
}
