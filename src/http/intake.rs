//! What one request to the administration surface holds of the pools that requests share, from its credential to its
//! answer.
//!
//! The place of work is given up while the body is awaited: nothing that others need is held for as long as a client
//! takes to send.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body;
use super::limits::{Limits, Reservation};
use crate::model::fault::Fault;
use crate::registry::access::Grant;

/// What one request holds. It is released with the last clone of the request's [`Visitor`](super::visitor::Visitor).
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
}

impl Intake {
    /// Of a request that holds nothing yet.
    pub fn new(limits: Arc<Limits>, places: Arc<Semaphore>) -> Self {
        Self { limits, places, held: Mutex::default() }
    }

    /// Takes a place of work for a request whose credential is verified; `None` for the operator's.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn begin_work(&self, grant: Option<&Arc<Grant>>) -> Result<(), Fault> {
        self.held.lock().grant = grant.cloned();
        self.resume()
    }

    fn resume(&self) -> Result<(), Fault> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Fault::BUSY)?;
        self.held.lock().place = Some(place);
        Ok(())
    }

    /// Reads the request's body, of at most `limit` bytes, without a place of work. What is reserved for it stays
    /// reserved until the request is answered.
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
