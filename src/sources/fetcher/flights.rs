//! The fetches in progress. Of each content there is at most one for each cause, since none pays for another; one at a time
//! asks the source.

use std::collections::HashMap;
use std::sync::Arc;

use content_source::FetchError;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::kept::{Kept, Key};
use crate::sources::cause::FetchCause;

/// A fetch whose result all who wait for it share (single flight).
pub(super) type Flight = Shared<BoxFuture<'static, Result<Arc<Kept>, FetchError>>>;
/// Held by the fetch that asks the source.
pub(super) type FetchLock = Arc<tokio::sync::Mutex<()>>;

/// The fetches in progress.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, OfContent>>);

/// The fetches of some content.
#[derive(Debug, Default)]
struct OfContent {
    by_cause: [Option<Flight>; FetchCause::COUNT],
    lock: FetchLock,
}

/// Removes a fetch from those in progress once it has ended, however it ends.
pub(super) struct EndGuard<'f> {
    pub(super) flights: &'f Flights,
    pub(super) key: &'f Key,
    pub(super) cause: FetchCause,
}

impl Flights {
    /// The fetch in progress that one of this cause may share: that of the cause or of the tenant, whose limits are higher; or
    /// the one that `begin` spawns.
    pub(super) fn join(
        &self,
        key: &Key,
        cause: FetchCause,
        begin: impl FnOnce(FetchLock) -> Flight,
    ) -> Flight {
        let mut flights = self.0.lock();
        let of = flights.entry(key.clone()).or_default();
        let shared =
            [FetchCause::Tenant, cause].into_iter().find_map(|cause| of.by_cause[cause.index()].clone());
        shared.unwrap_or_else(|| {
            let flight = begin(Arc::clone(&of.lock));
            of.by_cause[cause.index()] = Some(flight.clone());
            flight
        })
    }

    /// The number of fetches.
    pub(super) fn len(&self) -> usize {
        self.0.lock().values().map(|of| of.by_cause.iter().flatten().count()).sum()
    }
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        if let Some(of) = flights.get_mut(self.key) {
            of.by_cause[self.cause.index()] = None;
            if of.by_cause.iter().all(Option::is_none) {
                flights.remove(self.key);
            }
        }
    }
}
