//! The permits of one request to the administration API, from its credential to its answer.
//!
//! The work permit is released while the body is awaited: no shared resource is held for as long as a client takes to
//! send.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body;
use super::context::RequestContext;
use super::credential::Authenticator;
use crate::identity::grant::Grant;
use crate::model::audit::event::Event;
use crate::model::audit::write::AuditedCall;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::{CallInFlight, Limits, RateLimitStatus, UploadReservation};

/// The permits of one request. They are released with its [`SharedContext`].
#[derive(Debug)]
pub struct Intake {
    limits: Arc<Limits>,
    /// The work permits of all requests.
    permits: Arc<Semaphore>,
    held: Mutex<HeldPermits>,
}

#[derive(Debug, Default)]
struct HeldPermits {
    /// Verified the credential; `None` if the request needs none.
    authenticator: Option<Authenticator>,
    grant: Option<Arc<Grant>>,
    /// The address of a request that needs no credential.
    visitor: Option<ClientAddress>,
    work: Option<OwnedSemaphorePermit>,
    body: Option<UploadReservation>,
    call: Option<CallInFlight>,
    status: Option<RateLimitStatus>,
}

impl Intake {
    /// An empty set of permits.
    pub fn new(limits: Arc<Limits>, permits: Arc<Semaphore>) -> Self {
        Self { limits, permits, held: Mutex::default() }
    }

    /// Charges a request whose credential is verified, and acquires a work permit. `None` is the operator, which has no
    /// rate limit.
    ///
    /// # Errors
    /// [`Fault::Unavailable`], [`Fault::RateLimited`].
    pub fn begin_work(
        &self,
        authenticator: &Authenticator,
        grant: Option<&Arc<Grant>>,
        cost: u32,
    ) -> Result<(), Fault> {
        if self.held.lock().work.is_some() {
            // The credential was verified earlier, to decide about the request's host.
            return Ok(());
        }
        if let Some(grant) = grant {
            let call = self.limits.admit_call(&grant.credential)?;
            let status = self.limits.charge_call(&grant.credential, cost)?;
            let mut held = self.held.lock();
            held.grant = Some(Arc::clone(grant));
            held.call = Some(call);
            held.status = status;
        }
        self.held.lock().authenticator = Some(authenticator.clone());
        self.acquire_work_permit()
    }

    /// Charges a request that needs no credential to its address.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_visit(&self, client: ClientAddress, cost: u32) -> Result<(), Fault> {
        let status = self.limits.charge_visit(client, cost)?;
        let mut held = self.held.lock();
        held.visitor = Some(client);
        held.status = status;
        Ok(())
    }

    /// Adds the rate limit status to the headers of the answer.
    pub fn announce(&self, headers: &mut HeaderMap) {
        if let Some(status) = self.held.lock().status.take() {
            status.write(headers);
        }
    }

    /// Acquires a work permit.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn acquire_work_permit(&self) -> Result<(), Fault> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Fault::BUSY)?;
        self.held.lock().work = Some(permit);
        Ok(())
    }

    /// Waits for a permit that requests share, without a work permit, so that waiting requests take none from others. The
    /// grant is verified again afterwards.
    ///
    /// # Errors
    /// Those of the wait and of the credential; [`Fault::Unavailable`].
    pub async fn wait<T>(&self, wait: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.held.lock().work = None;
        let waited = wait.await?;
        self.verify_grant_again().await?;
        self.acquire_work_permit()?;
        Ok(waited)
    }

    /// Reads the request's body, of at most `limit` bytes, without a work permit. The reservation lasts until the request
    /// is answered. The credential is verified again if it had to wait for the body. A request without one has no work
    /// permit afterwards either.
    ///
    /// # Errors
    /// Those of [`body::read`] and of the credential; [`Fault::Unavailable`].
    pub async fn read<B>(&self, headers: &HeaderMap, body: &mut B, limit: usize) -> Result<Bytes, Fault>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (grant, visitor, verified) = {
            let mut held = self.held.lock();
            held.work = None;
            (held.grant.clone(), held.visitor, held.authenticator.is_some())
        };
        let credential = grant.as_ref().map(|grant| &grant.credential);
        let reserve = |bytes| self.limits.reserve(credential, visitor, bytes);
        let mut received = body::read(body, limit, self.limits.pace(), reserve).await?;
        if let Some(reserved) = &mut received.reserved {
            reserved.shrink_to(received.bytes.len());
            self.verify_again(headers).await?;
        }
        self.held.lock().body = received.reserved;
        if verified {
            self.acquire_work_permit()?;
        }
        Ok(received.bytes)
    }

    /// Fails if the credential was revoked or expired since it was verified. An operator key may be out of force by now.
    async fn verify_again(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let authenticator = self.held.lock().authenticator.clone();
        let Some(authenticator) = authenticator else { return Ok(()) };
        authenticator.read(headers)?;
        self.verify_grant_again().await
    }

    /// Fails if the grant was revoked or expired since it was verified. Its scopes and agents are compared with nothing: they
    /// never change.
    async fn verify_grant_again(&self) -> Result<(), Fault> {
        let (authenticator, grant) = {
            let held = self.held.lock();
            (held.authenticator.clone(), held.grant.clone())
        };
        match authenticator.zip(grant) {
            Some((authenticator, grant)) => authenticator.identity().current_grant(&grant).await.map(drop),
            None => Ok(()),
        }
    }
}

/// The context of a request, stored in the extensions of the request, and the permits of the request.
#[derive(Debug)]
pub struct SharedContext {
    /// The address of the client.
    pub client: ClientAddress,
    /// The permits of the request.
    pub intake: Intake,
    context: Mutex<RequestContext>,
    row: Mutex<AuditRow>,
}

/// The state of a call's audit row before the call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuditRow {
    /// It is written with the answer.
    Due,
    /// It is committed with a change, with this status.
    Committed(u16),
    /// It is omitted: the same row was written recently.
    Omitted,
}

impl AuditRow {
    /// Whether the answer with this status has no row yet.
    fn lacks(self, status: u16) -> bool {
        match self {
            Self::Due => true,
            Self::Committed(committed) => committed != status,
            Self::Omitted => false,
        }
    }
}

impl SharedContext {
    /// Shares the context of a request that has these permits.
    pub fn new(context: RequestContext, intake: Intake) -> Arc<Self> {
        let client = context.event.client;
        Arc::new(Self { client, intake, context: Mutex::new(context), row: Mutex::new(AuditRow::Due) })
    }

    /// The context of a request.
    ///
    /// # Errors
    /// [`Fault::Internal`] if the server has not added it.
    pub fn of(extensions: &Extensions) -> Result<&Arc<Self>, Fault> {
        extensions.get().ok_or_else(|| Fault::Internal("a request came without its context".to_owned()))
    }

    /// Reads or changes the context.
    pub fn with<T>(&self, visit: impl FnOnce(&mut RequestContext) -> T) -> T {
        visit(&mut self.context.lock())
    }

    /// A copy of the context.
    pub fn snapshot(&self) -> RequestContext {
        self.context.lock().clone()
    }

    /// Whether the answer with this status is still to be recorded. One that differs from the row that was committed with
    /// a change is: the deadline passed or the handler failed after the commit.
    pub fn is_unrecorded(&self, status: StatusCode) -> bool {
        self.row.lock().lacks(status.as_u16())
    }

    /// Whether a row was committed with a change.
    pub fn has_committed(&self) -> bool {
        matches!(*self.row.lock(), AuditRow::Committed(_))
    }

    /// Leaves the audit row out.
    pub fn omit_row(&self) {
        *self.row.lock() = AuditRow::Omitted;
    }
}

impl AuditedCall for SharedContext {
    fn event(&self) -> Event {
        let context = self.context.lock();
        Event { micros: context.micros(), ..context.event.clone() }
    }

    fn committed(&self, status: u16) {
        *self.row.lock() = AuditRow::Committed(status);
    }
}

#[cfg(test)]
mod tests {
    use super::AuditRow;

    #[test]
    fn answer_that_differs_from_the_committed_row_has_a_row() {
        assert!(AuditRow::Due.lacks(200));
        assert!(!AuditRow::Committed(204).lacks(204));
        assert!(AuditRow::Committed(204).lacks(503));
        assert!(!AuditRow::Omitted.lacks(200));
    }
}
