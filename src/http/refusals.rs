//! Bodies of refused requests: read for the id that the answer names, and read away so that the answer arrives.
//!
//! Both wait for a client that is owed nothing, so [`Refusals`] has a few places of its own, which no other request
//! needs. Where none is free, and for an address that is barred, nothing is waited for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Body as HttpBody;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::body::{self, Received};
use super::within::within;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::Limits;

/// Bytes that are read for the id of a refused request, and for how long.
const REFUSED_BODY: usize = 64 * 1024;
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// Reads the bodies of refused requests.
#[derive(Debug)]
pub struct Refusals {
    places: Semaphore,
    limits: Arc<Limits>,
}

impl Refusals {
    /// So many bodies at once.
    pub fn new(places: usize, limits: Arc<Limits>) -> Self {
        Self { places: Semaphore::new(places), limits }
    }

    /// A refused request's body, as far as a place is free and the address is not barred; else nothing.
    pub async fn read<B>(&self, client: ClientAddress, body: &mut B) -> Bytes
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        if body.is_end_stream() {
            return Bytes::new();
        }
        let Some(_place) = self.place(client) else { return Bytes::new() };
        self.read_short(body, |_| Ok(())).await.map_or_else(Bytes::new, |received| received.bytes)
    }

    /// The body of a caller whose request is refused, which is reserved of what is the caller's; `None` where it is too
    /// long or does not arrive in time.
    pub async fn read_short<B, R>(
        &self,
        body: &mut B,
        reserve: impl FnOnce(usize) -> Result<R, Fault>,
    ) -> Option<Received<R>>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let reading = pin!(body::read(body, REFUSED_BODY, self.limits.pace(), reserve));
        within(REFUSED_TIME, reading).await?.ok()
    }

    /// Reads away what is left of a body, as [`body::discard`] does, while a place is free.
    pub async fn discard<B>(&self, client: ClientAddress, headers: &HeaderMap, body: B)
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        if body.is_end_stream() {
            return;
        }
        if let Some(_place) = self.place(client) {
            body::discard(headers, body).await;
        }
    }

    fn place(&self, client: ClientAddress) -> Option<SemaphorePermit<'_>> {
        if self.limits.is_barred(client) { None } else { self.places.try_acquire().ok() }
    }
}
