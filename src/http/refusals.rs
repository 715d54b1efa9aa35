//! Refused requests: the challenge that says which credential is needed (`WWW-Authenticate`, RFC 6750; the metadata of protected
//! resources extends it), and their bodies: read for the JSON-RPC id, and discarded so that the answer arrives.
//!
//! Both wait for an unauthenticated client, so [`Refusals`] has a small pool of its own, separate from the slots of other
//! requests. If the pool or the part of the address is exhausted, or the address is barred, the body is not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use hyper::body::Body as HttpBody;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::body::{self, Received};
use crate::cache::{CountGuard, KeyedCounts};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::quota::limits::{BodyPace, Limits};

/// How many bytes are read for the id of a refused request.
pub const REFUSED_BODY: usize = 64 * 1024;
/// For how long they are read.
const REFUSED_TIME: Duration = Duration::from_secs(1);
/// They may be slow until then.
const PACE: BodyPace = BodyPace { window: REFUSED_TIME, bytes_per_second: 0 };

/// The part of the permits that one address may have: a quarter.
const ADDRESS_PART: usize = 4;

/// Reads the bodies of refused requests.
#[derive(Debug)]
pub struct Refusals {
    permits: Semaphore,
    /// Permits in use, by address.
    used: Arc<KeyedCounts<ClientAddress>>,
    per_address: usize,
    limits: Arc<Limits>,
}

impl Refusals {
    /// Reads up to `permits` bodies concurrently.
    pub fn new(permits: usize, limits: Arc<Limits>) -> Self {
        let per_address = permits.div_ceil(ADDRESS_PART);
        Self { permits: Semaphore::new(permits), used: Arc::default(), per_address, limits }
    }

    /// The body of a refused request; empty if the pool or the part of the address is exhausted, or the address is barred.
    pub async fn read<B>(&self, client: ClientAddress, body: &mut B) -> Bytes
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        if body.is_end_stream() {
            return Bytes::new();
        }
        let Some(_permit) = self.acquire(client) else { return Bytes::new() };
        read_short(body, |_| Ok(())).await.map_or_else(Bytes::new, |received| received.bytes)
    }

    /// Discards the rest of a body with [`body::discard`], if the pool has a free permit.
    pub async fn discard<B>(&self, client: ClientAddress, headers: &HeaderMap, body: B)
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        if body.is_end_stream() {
            return;
        }
        if let Some(_permit) = self.acquire(client) {
            body::discard(headers, body).await;
        }
    }

    fn acquire(&self, client: ClientAddress) -> Option<(CountGuard<ClientAddress>, SemaphorePermit<'_>)> {
        if self.limits.is_barred(client) {
            return None;
        }
        self.used.try_add(client.network(), self.per_address).zip(self.permits.try_acquire().ok())
    }
}

/// The body of a refused request, whose memory is reserved first; `None` if it is too long or late, or the memory is refused.
pub async fn read_short<B, R>(
    body: &mut B,
    reserve: impl FnOnce(usize) -> Result<R, Fault>,
) -> Option<Received<R>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    timeout(REFUSED_TIME, body::read(body, REFUSED_BODY, PACE, reserve)).await.ok()?.ok()
}

/// The challenge of a refusal, if it has one.
pub fn challenge(fault: &Fault) -> Option<HeaderValue> {
    match fault {
        Fault::Unauthenticated | Fault::ConflictingCredentials => {
            Some(HeaderValue::from_static(r#"Bearer realm="MCP""#))
        }
        Fault::InsufficientScope(scope) => HeaderValue::try_from(format!(
            r#"Bearer realm="MCP", error="insufficient_scope", scope="{scope}""#
        ))
        .ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    use super::Refusals;
    use crate::model::client_address::ClientAddress;
    use crate::quota::limits::{BodyMemoryOptions, BodyPace, LimitOptions, Limits};

    #[test]
    fn one_address_has_a_quarter_of_the_places() {
        let pace = BodyPace { window: Duration::ZERO, bytes_per_second: 0 };
        let limits = LimitOptions {
            key: None,
            agent: None,
            tenant: None,
            address: None,
            concurrent_per_key: 1,
            concurrent_per_agent: 1,
            look_ups: None,
            penalty: Duration::ZERO,
            remembered: 1,
            uploads: BodyMemoryOptions { total: 0, per_tenant: 0, per_key: 0, pace },
        };
        let refusals = Refusals::new(6, Arc::new(Limits::new(limits)));
        let client = |nth| ClientAddress::from(IpAddr::from(Ipv4Addr::new(192, 0, 2, nth)));
        let first = [refusals.acquire(client(1)), refusals.acquire(client(1))];
        assert!(first.iter().all(Option::is_some) && refusals.acquire(client(1)).is_none());
        let others: Vec<_> = (2..=5).map(|nth| refusals.acquire(client(nth)).is_some()).collect();
        assert_eq!(others, [true; 4]);
        drop(first);
        assert!(refusals.acquire(client(1)).is_some());
    }
}
