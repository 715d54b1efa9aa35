//! The permits of one request to the administration API, from its credential to its answer.
//!
//! The permits for work and for queries are released while the body is awaited: no shared resource is held for as long as
//! a client takes to send.

use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body;
use super::context::RequestContext;
use super::credential::Authenticator;
use super::query_limiter::{QueryLimiter, QueryPermit};
use crate::identity::grant::Grant;
use crate::model::audit::event::Event;
use crate::model::audit::write::AuditedCall;
use crate::model::caller::Payer;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::{BodyReservation, CallInFlight, Limits, RateLimitStatus};

/// Answers up to this many bytes have no reservation: the bounds on connections and requests bound them.
const SHORT_ANSWER: usize = 64 * 1024;

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
    /// Grants the permits for queries, if the credential is verified.
    queries: Option<Arc<QueryLimiter>>,
    query: Option<QueryPermit>,
    work: Option<OwnedSemaphorePermit>,
    body: Option<BodyReservation>,
    call: Option<CallInFlight>,
    status: Option<RateLimitStatus>,
}

impl Intake {
    /// An empty set of permits.
    pub fn new(limits: Arc<Limits>, permits: Arc<Semaphore>) -> Self {
        Self { limits, permits, held: Mutex::default() }
    }

    /// Charges a request whose credential is verified, and acquires a permit for queries and a work permit. `None` is the
    /// operator, which has no rate limit.
    ///
    /// # Errors
    /// [`Fault::Unavailable`], [`Fault::RateLimited`], and those of the credential, which may end while the request waits.
    pub async fn begin_work(
        &self,
        (authenticator, queries): (&Authenticator, &Arc<QueryLimiter>),
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
        {
            let mut held = self.held.lock();
            held.authenticator = Some(authenticator.clone());
            held.queries = Some(Arc::clone(queries));
        }
        self.resume_work().await
    }

    /// Acquires the permits of a request whose credential is verified. It waits for the one for queries, and has no work
    /// permit until then.
    async fn resume_work(&self) -> Result<(), Fault> {
        let queries = self.held.lock().queries.clone();
        if let Some(queries) = queries {
            let permit = queries.acquire(self.payer()).await?;
            self.held.lock().query = Some(permit);
            self.verify_grant_again().await?;
        }
        self.acquire_work_permit()
    }

    /// Who pays for the queries of the request.
    pub fn payer(&self) -> Payer {
        let tenant = |grant: &Arc<Grant>| Payer::Tenant(grant.credential.tenant);
        self.held.lock().grant.as_ref().map_or(Payer::Gateway, tenant)
    }

    /// Releases the permit for queries, once the request has read what it needs: before a write, which has a queue of its own,
    /// before a wait, and with the answer.
    pub fn release_query(&self) {
        self.held.lock().query = None;
    }

    /// Reserves the memory of a complete answer until it is sent, which takes as long as its client wants.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn reserve_answer(&self, answer: Bytes) -> Result<Bytes, Fault> {
        let (grant, verified) = {
            let held = self.held.lock();
            (held.grant.clone(), held.authenticator.is_some())
        };
        // What is answered without a credential is part of the program.
        if !verified || answer.len() <= SHORT_ANSWER {
            return Ok(answer);
        }
        let credential = grant.as_ref().map(|grant| &grant.credential);
        let reserved = self.limits.reserve_answer(credential, answer.len())?;
        Ok(Bytes::from_owner(ReservedAnswer { answer, _reserved: reserved }))
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

    /// Waits for a permit that requests share, without permits for work and queries, so that waiting requests take none from
    /// others. The grant is verified again afterwards.
    ///
    /// # Errors
    /// Those of the wait and of the credential; [`Fault::Unavailable`].
    pub async fn wait<T>(&self, wait: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.pause_work();
        let waited = wait.await?;
        self.resume_work().await?;
        Ok(waited)
    }

    /// What the wait of a request failed with `fault` for ([`ChangeFeed::cause_of`](crate::model::feed::ChangeFeed::cause_of)).
    pub fn cause_of(&self, fault: Fault) -> Fault {
        match &self.held.lock().queries {
            Some(queries) => queries.cause_of(fault),
            None => fault,
        }
    }

    fn pause_work(&self) {
        let mut held = self.held.lock();
        (held.work, held.query) = (None, None);
    }

    /// Reads the request's body, of at most `limit` bytes, without permits for work and queries. The reservation lasts until
    /// the request is answered. The credential is verified again if it had to wait for the body. A request without one has
    /// no permits afterwards either.
    ///
    /// # Errors
    /// Those of [`body::read`] and of the credential; [`Fault::Unavailable`].
    pub async fn read<B>(&self, headers: &HeaderMap, body: &mut B, limit: usize) -> Result<Bytes, Fault>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        self.pause_work();
        let (grant, visitor, authenticator) = {
            let held = self.held.lock();
            (held.grant.clone(), held.visitor, held.authenticator.clone())
        };
        let credential = grant.as_ref().map(|grant| &grant.credential);
        let reserve = |bytes| self.limits.reserve(credential, visitor, bytes);
        let mut received = body::read(body, limit, self.limits.pace(), reserve).await?;
        if let Some(reserved) = &mut received.reserved {
            reserved.shrink_to(received.bytes.len());
            // An operator key may be out of force by now.
            authenticator.as_ref().map_or(Ok(()), |authenticator| authenticator.read(headers).map(drop))?;
        }
        self.held.lock().body = received.reserved;
        if authenticator.is_some() {
            self.resume_work().await?;
        }
        Ok(received.bytes)
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

/// Bytes of an answer, and the reservation of their memory.
struct ReservedAnswer {
    answer: Bytes,
    _reserved: BodyReservation,
}

impl AsRef<[u8]> for ReservedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.answer
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
