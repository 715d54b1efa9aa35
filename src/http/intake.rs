//! The permits of one request to the administration API, from its credential to its answer.
//!
//! The work permit is released while the body is awaited: no shared resource is held for as long as a client takes to
//! send.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body;
use crate::identity::grant::Grant;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::{Limits, RateLimitStatus, Reservation, UnderWay};

/// The permits of one request. They are released with its [`SharedContext`](super::shared_context::SharedContext).
#[derive(Debug)]
pub struct Intake {
    limits: Arc<Limits>,
    places: Arc<Semaphore>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    grant: Option<Arc<Grant>>,
    place: Option<OwnedSemaphorePermit>,
    body: Option<Reservation>,
    under_way: Option<UnderWay>,
    status: Option<RateLimitStatus>,
}

impl Intake {
    /// An empty set of permits.
    pub fn new(limits: Arc<Limits>, places: Arc<Semaphore>) -> Self {
        Self { limits, places, held: Mutex::default() }
    }

    /// Charges a request whose credential is verified, and acquires a work permit. `None` is the operator, which has no
    /// rate limit.
    ///
    /// # Errors
    /// [`Fault::Unavailable`], [`Fault::RateLimited`].
    pub fn begin_work(&self, grant: Option<&Arc<Grant>>, cost: u32) -> Result<(), Fault> {
        if self.held.lock().place.is_some() {
            // The credential was verified earlier, to decide about the request's host.
            return Ok(());
        }
        if let Some(grant) = grant {
            let under_way = self.limits.admit_call(&grant.credential)?;
            let status = self.limits.charge_call(&grant.credential, cost)?;
            let mut held = self.held.lock();
            held.grant = Some(Arc::clone(grant));
            held.under_way = Some(under_way);
            held.status = status;
        }
        self.resume()
    }

    /// Charges a request that needs no credential to its address.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_visit(&self, client: ClientAddress, cost: u32) -> Result<(), Fault> {
        let status = self.limits.charge_visit(client, cost)?;
        self.held.lock().status = status;
        Ok(())
    }

    /// Adds the rate limit status to the headers of the answer.
    pub fn announce(&self, headers: &mut HeaderMap) {
        if let Some(status) = self.held.lock().status.take() {
            status.write(headers);
        }
    }

    fn resume(&self) -> Result<(), Fault> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Fault::BUSY)?;
        self.held.lock().place = Some(place);
        Ok(())
    }

    /// Reads the request's body, of at most `limit` bytes, without a work permit. The reservation lasts until the request
    /// is answered.
    ///
    /// # Errors
    /// Those of [`body::read`]; [`Fault::Unavailable`].
    pub async fn read<B>(&self, body: &mut B, limit: usize) -> Result<Bytes, Fault>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        self.held.lock().place = None;
        let grant = self.held.lock().grant.clone();
        let reserve = |bytes| self.limits.reserve(grant.as_ref().map(|grant| &grant.credential), bytes);
        let mut received = body::read(body, limit, self.limits.pace(), reserve).await?;
        if let Some(reserved) = &mut received.reserved {
            reserved.shrink_to(received.bytes.len());
        }
        self.held.lock().body = received.reserved;
        self.resume()?;
        Ok(received.bytes)
    }
}
