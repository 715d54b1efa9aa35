//! Places for connections: so many on a listener, and so many of them for one address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::client_address::TrustedProxies;
use crate::model::client_address::network_of;

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
    taken: Arc<DashMap<IpAddr, usize>>,
    per_address: usize,
    /// For many, whoever they are.
    proxies: TrustedProxies,
    refused: AtomicU64,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    taken: Arc<DashMap<IpAddr, usize>>,
    address: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(all: usize, per_address: usize, proxies: TrustedProxies) -> Self {
        let free = Arc::new(Semaphore::new(all));
        Self { free, all, taken: Arc::default(), per_address, proxies, refused: AtomicU64::new(0) }
    }

    /// Waits for a free place, for whoever comes next.
    pub(super) async fn free(&self) -> std::io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.map_err(std::io::Error::other)
    }

    /// Gives a place to whoever came, unless he has as many as he may.
    pub(super) fn take(&self, peer: IpAddr, permit: OwnedSemaphorePermit) -> Option<Place> {
        let address = (!self.proxies.trusts(peer)).then(|| network_of(peer));
        if let Some(address) = address {
            let mut taken = self.taken.entry(address).or_default();
            if *taken >= self.per_address {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            *taken += 1;
        }
        Some(Place { taken: Arc::clone(&self.taken), address, _permit: permit })
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.all - self.free.available_permits().min(self.all)
    }

    /// How many connections were closed at once, since their address had as many as it may.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(Entry::Occupied(mut entry)) = self.address.map(|address| self.taken.entry(address)) else {
            return;
        };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use crate::config::ForwardedHeader;
    use crate::http::client_address::TrustedProxies;

    #[tokio::test]
    async fn an_address_has_its_places_a_proxy_any_number_and_what_is_given_back_is_forgotten() {
        let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()], ForwardedHeader::default());
        let places = Places::new(9, 2, proxies);
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
            let place = places.take(peer.parse().unwrap(), places.free().await.unwrap());
            assert_eq!(place.is_some(), granted, "{peer}");
            held.extend(place);
        }
        assert_eq!((places.open(), places.refused(), places.taken.len()), (7, 2, 2));
        held.remove(0);
        assert!(places.take("192.0.2.1".parse().unwrap(), places.free().await.unwrap()).is_some());
        held.clear();
        assert_eq!((places.open(), places.taken.len()), (0, 0));
    }
}
