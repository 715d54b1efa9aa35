//! Limits the connections of a listener, in total and for each address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::client_address::TrustedProxies;
use crate::model::client_address::network_of;

/// Limits the connections of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    slots: Arc<Semaphore>,
    limit: usize,
    /// By address or IPv6 network, those with open connections.
    open: Arc<DashMap<IpAddr, AddressConnections>>,
    per_address: usize,
    /// Exempt from the limit for each address: they connect for many clients.
    proxies: TrustedProxies,
    refused: AtomicU64,
}

/// The connections of an address.
#[derive(Debug, Default)]
struct AddressConnections {
    open: usize,
    /// Whether a refusal was logged since the address has had connections.
    refusal_logged: bool,
}

/// Permits one connection, until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    open: Arc<DashMap<IpAddr, AddressConnections>>,
    address: Option<IpAddr>,
    _slot: OwnedSemaphorePermit,
}

impl ConnectionLimiter {
    pub(super) fn new(limit: usize, per_address: usize, proxies: TrustedProxies) -> Self {
        let slots = Arc::new(Semaphore::new(limit));
        Self { slots, limit, open: Arc::default(), per_address, proxies, refused: AtomicU64::new(0) }
    }

    /// Waits for a slot, for the next connection.
    pub(super) async fn reserve(&self) -> std::io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.map_err(std::io::Error::other)
    }

    /// Permits a connection of `peer`, unless its address is at its limit.
    pub(super) fn acquire(&self, peer: IpAddr, slot: OwnedSemaphorePermit) -> Option<Permit> {
        let address = (!self.proxies.trusts(peer)).then(|| network_of(peer));
        if let Some(address) = address {
            let mut connections = self.open.entry(address).or_default();
            if connections.open >= self.per_address {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut connections.refusal_logged, true) {
                    tracing::warn!(
                        %address,
                        limit = self.per_address,
                        "closing further connections of an address with server.connections_per_address open ones"
                    );
                }
                return None;
            }
            connections.open += 1;
        }
        Some(Permit { open: Arc::clone(&self.open), address, _slot: slot })
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.limit - self.slots.available_permits().min(self.limit)
    }

    /// How many connections were closed at once, since their address was at its limit.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(Entry::Occupied(mut entry)) = self.address.map(|address| self.open.entry(address)) else {
            return;
        };
        entry.get_mut().open -= 1;
        if entry.get().open == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionLimiter;
    use crate::config::ForwardedHeader;
    use crate::http::client_address::TrustedProxies;

    #[tokio::test]
    async fn connections_are_limited_by_address_except_of_proxies() {
        let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()], ForwardedHeader::default());
        let limiter = ConnectionLimiter::new(9, 2, proxies);
        let mut held = Vec::new();
        for (peer, granted) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("192.0.2.1", true),
            ("192.0.2.1", false),
            ("2001:db8::2", true),
            ("2001:db8::3", false),
            ("10.0.0.1", true),
            ("10.0.0.1", true),
            ("10.0.0.1", true),
        ] {
            let permit = limiter.acquire(peer.parse().unwrap(), limiter.reserve().await.unwrap());
            assert_eq!(permit.is_some(), granted, "{peer}");
            held.extend(permit);
        }
        assert_eq!((limiter.open(), limiter.refused(), limiter.open.len()), (7, 2, 2));
        held.remove(0);
        assert!(limiter.acquire("192.0.2.1".parse().unwrap(), limiter.reserve().await.unwrap()).is_some());
        held.clear();
        assert_eq!((limiter.open(), limiter.open.len()), (0, 0));
    }
}
