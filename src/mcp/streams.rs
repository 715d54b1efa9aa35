//! The limits on open streams: of a credential, of a tenant, of anonymous callers of its agents, of a session and of the replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cache::{CountGuard, KeyedCounts};
use crate::identity::grant::Caller;
use crate::model::audit::event::Outcome;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{KeyId, SessionUid, TenantId};
use crate::model::limits::{LimitScope, Limited};
use crate::model::method::Era;

/// A refused stream may be retried when another one ends, which cannot be predicted.
const RETRY: Duration = Duration::from_secs(1);
/// The part of the replica's streams that one tenant leaves to others: a quarter.
const OTHERS_PART: usize = 4;
/// The part of a tenant's streams that anonymous callers of its public agents may have: half.
const ANONYMOUS_PART: usize = 2;

/// Why the gateway ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The gateway is shutting down.
    Shutdown,
    /// The agent was disabled or deleted, or the credential revoked, or it expired.
    NotAllowed,
    /// The session ended.
    Session,
    /// A newer stream of the session replaced it.
    Superseded,
}

impl StreamEnd {
    /// The outcome of a stream that ends so.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Shutdown => Outcome::EndedShutdown,
            Self::NotAllowed => Outcome::EndedNotAllowed,
            Self::Session => Outcome::EndedSession,
            Self::Superseded => Outcome::EndedSuperseded,
        }
    }
}

/// The streams of this replica.
#[derive(Debug)]
pub(super) struct Streams {
    open: Arc<KeyedCounts<Counted>>,
    per_holder: usize,
    per_tenant: usize,
    permits: Arc<Semaphore>,
    eras: [Arc<EraStreams>; 2],
    /// Cancelled at shutdown: no further ones are opened, and these end at their next recheck.
    pub(super) closing: CancellationToken,
}

/// The streams of an era.
#[derive(Debug, Default)]
struct EraStreams {
    open: AtomicUsize,
    notified: AtomicU64,
}

/// The counters of the streams of an era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStats {
    /// The era.
    pub era: &'static str,
    /// The number of open streams.
    pub open: usize,
    /// The changes sent on them so far.
    pub notified: u64,
}

/// The holders that streams are counted for: a key, or an address without one, the tenants of the agent and of the key, all
/// anonymous callers of the agents of a tenant, and a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counted {
    Key(KeyId),
    /// An address without a key, at public agents.
    Anonymous(ClientAddress),
    Tenant(TenantId),
    /// All callers of a tenant's public agents without a credential of the tenant.
    AnonymousOf(TenantId),
    Session(SessionUid),
}

/// A permit for one stream, released when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit {
    _counted: [Option<CountGuard<Counted>>; 5],
    era: Arc<EraStreams>,
    _permit: OwnedSemaphorePermit,
}

impl StreamPermit {
    /// Counts a change that was sent on the stream.
    pub(super) fn notified(&self) {
        self.era.notified.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.era.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Streams {
    pub(super) fn new(per_holder: usize, total: usize, closing: CancellationToken) -> Self {
        let permits = Arc::new(Semaphore::new(total));
        let per_tenant = total - total / OTHERS_PART;
        Self { open: Arc::default(), per_holder, per_tenant, permits, eras: Default::default(), closing }
    }

    pub(super) fn stats(&self) -> [StreamStats; 2] {
        let [legacy, modern] = &self.eras;
        [(Era::Legacy, legacy), (Era::Modern, modern)].map(|(era, streams)| StreamStats {
            era: era.as_str(),
            open: streams.open.load(Ordering::Relaxed),
            notified: streams.notified.load(Ordering::Relaxed),
        })
    }

    /// Acquires a permit for one more stream. The stream that replaces the one of a session may exceed the limit until the
    /// other has ended: a client that reconnects is not refused for the connection that it lost.
    ///
    /// # Errors
    /// [`Fault::RateLimited`] at the limit of the credential or of the tenant; [`Fault::Unavailable`] at the limit of the
    /// replica.
    pub(super) fn acquire(
        &self,
        caller: &Caller,
        client: ClientAddress,
        session: Option<SessionUid>,
    ) -> Result<StreamPermit, Fault> {
        let (holder, scope) = match &caller.grant {
            Some(grant) => (Counted::Key(grant.credential.key), LimitScope::Key),
            None => (Counted::Anonymous(client.network()), LimitScope::Address),
        };
        let tenant = caller.tenant;
        let own = caller.grant.as_ref().map(|grant| grant.credential.tenant);
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Fault::BUSY)?;
        let session = session.map(Counted::Session);
        let replaces = session.is_some_and(|session| self.open.get(session) == 1);
        let count = |counted, most, scope| {
            let limited = Fault::RateLimited { scope, limited: Limited::Streams(most), retry_after: RETRY };
            self.open.try_add(counted, if replaces { usize::MAX } else { most }).ok_or(limited)
        };
        let holder = count(holder, self.per_holder, scope)?;
        let of_tenant = |tenant| count(Counted::Tenant(tenant), self.per_tenant, LimitScope::Tenant);
        let agents = of_tenant(tenant)?;
        let keys = own.filter(|own| *own != tenant).map(of_tenant).transpose()?;
        let is_anonymous = own != Some(tenant);
        let anonymous = is_anonymous.then(|| {
            let most = self.per_tenant.div_ceil(ANONYMOUS_PART);
            count(Counted::AnonymousOf(tenant), most, LimitScope::Tenant)
        });
        let anonymous = anonymous.transpose()?;
        let of_session = session.and_then(|session| self.open.try_add(session, usize::MAX));
        let counted = [Some(holder), Some(agents), keys, anonymous, of_session];
        let [legacy, modern] = &self.eras;
        let era = Arc::clone(if session.is_some() { legacy } else { modern });
        era.open.fetch_add(1, Ordering::Relaxed);
        Ok(StreamPermit { _counted: counted, era, _permit: permit })
    }
}
