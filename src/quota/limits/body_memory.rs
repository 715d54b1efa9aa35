//! Memory of request bodies that have not arrived completely or are in use, accounted before it is allocated, and of answers
//! that are not sent.
//!
//! [`BodyMemory`] bounds the bytes of the process, of one tenant and of one key; a [`BodyReservation`] holds bytes of all
//! three until it is dropped. An entry exists only while something is reserved for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;

use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, TenantId};

/// The minimum rate of a body: in each window it transfers at least this many bytes per second, or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyPace {
    /// The window over which bytes are counted.
    pub window: Duration,
    /// Bytes a second.
    pub bytes_per_second: u32,
}

impl BodyPace {
    /// The bytes that a window must transfer.
    pub fn least(self) -> u128 {
        u128::from(self.bytes_per_second) * self.window.as_millis() / 1_000
    }
}

/// The bounds on reserved bytes, and the minimum rate of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyMemoryOptions {
    /// Bytes of all bodies of the process.
    pub total: u64,
    /// Bytes of one tenant, and of all anonymous callers of one public agent together.
    pub per_tenant: u64,
    /// Bytes of one key, and of one address without a key.
    pub per_key: u64,
    /// The minimum rate of a body.
    pub pace: BodyPace,
}

/// The account that bytes are reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BodyAccount {
    Key(KeyId),
    Address(ClientAddress),
    Tenant(TenantId),
    /// All anonymous callers of a public agent.
    Anonymous(AgentId),
    /// All requests to the administration API that need no credential: to hooks.
    Visitors,
}

/// The reserved bytes.
#[derive(Debug)]
pub(super) struct BodyMemory {
    options: BodyMemoryOptions,
    total: AtomicU64,
    by_account: DashMap<BodyAccount, u64, RandomState>,
}

impl BodyMemory {
    pub(super) fn new(options: BodyMemoryOptions) -> Arc<Self> {
        Arc::new(Self { options, total: AtomicU64::new(0), by_account: DashMap::default() })
    }

    /// The bounds on unsent answers beside those on bodies.
    pub(super) fn of_answers(bodies: BodyMemoryOptions) -> Arc<Self> {
        let BodyMemoryOptions { total, per_tenant, per_key, pace } = bodies;
        let per_key = per_key.min(per_tenant) / 4;
        Self::new(BodyMemoryOptions { total: total / 2, per_tenant: per_tenant / 2, per_key, pace })
    }

    pub(super) fn options(&self) -> &BodyMemoryOptions {
        &self.options
    }

    /// The bytes that are reserved now.
    pub(super) fn reserved(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Reserves bytes of a key or an address, then of its tenant, then of the process; for the operator only of the
    /// process.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if one of the three has too few left; then nothing is reserved.
    pub(super) fn reserve(
        self: &Arc<Self>,
        own: Option<BodyAccount>,
        group: Option<BodyAccount>,
        bytes: usize,
    ) -> Result<BodyReservation, Fault> {
        let bytes = bytes as u64;
        let mut reservation =
            BodyReservation { uploads: Arc::clone(self), own: None, group: None, total: 0, bytes };
        let BodyMemoryOptions { total, per_tenant, per_key, .. } = self.options;
        for (account, most, taken) in
            [(own, per_key, &mut reservation.own), (group, per_tenant, &mut reservation.group)]
        {
            if let Some(account) = account {
                self.add(account, bytes, most)?;
                *taken = Some(account);
            }
        }
        let within = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= total);
        let added = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        added.map_err(|_| Fault::BUSY)?;
        reservation.total = bytes;
        Ok(reservation)
    }

    fn add(&self, account: BodyAccount, bytes: u64, most: u64) -> Result<(), Fault> {
        match self.by_account.entry(account) {
            Entry::Vacant(entry) if bytes <= most => {
                entry.insert(bytes);
                Ok(())
            }
            Entry::Occupied(mut entry) if entry.get().checked_add(bytes).is_some_and(|sum| sum <= most) => {
                *entry.get_mut() += bytes;
                Ok(())
            }
            _ => Err(Fault::BUSY),
        }
    }

    fn subtract(&self, account: BodyAccount, bytes: u64) {
        if let Entry::Occupied(mut entry) = self.by_account.entry(account) {
            *entry.get_mut() = entry.get().saturating_sub(bytes);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// Reserved bytes, until dropped.
#[derive(Debug)]
pub struct BodyReservation {
    uploads: Arc<BodyMemory>,
    own: Option<BodyAccount>,
    group: Option<BodyAccount>,
    total: u64,
    bytes: u64,
}

impl BodyReservation {
    /// Returns the bytes that a body shorter than its reservation does not need.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare = self.bytes.saturating_sub(bytes as u64);
        self.give_back(spare);
        self.bytes -= spare;
    }

    fn give_back(&mut self, bytes: u64) {
        for account in [self.own, self.group].into_iter().flatten() {
            self.uploads.subtract(account, bytes);
        }
        let of_total = bytes.min(self.total);
        self.total -= of_total;
        self.uploads.total.fetch_sub(of_total, Ordering::Relaxed);
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use uuid::Uuid;

    use super::{BodyAccount, BodyMemory, BodyMemoryOptions, BodyPace};
    use crate::model::fault::Fault;
    use crate::model::ids::{KeyId, TenantId};

    fn uploads() -> Arc<BodyMemory> {
        let pace = BodyPace { window: Duration::from_secs(5), bytes_per_second: 65_536 };
        BodyMemory::new(BodyMemoryOptions { total: 100, per_tenant: 50, per_key: 40, pace })
    }

    fn key(nth: u128) -> BodyAccount {
        BodyAccount::Key(KeyId(Uuid::from_u128(nth)))
    }

    fn tenant(nth: u128) -> BodyAccount {
        BodyAccount::Tenant(TenantId(Uuid::from_u128(nth)))
    }

    #[test]
    fn key_tenant_and_process_each_bound_the_reserved_bytes() {
        let uploads = uploads();
        let mut held = Vec::new();
        for (own, group, bytes, granted) in [
            (Some(key(1)), Some(tenant(1)), 41, false),
            (Some(key(1)), Some(tenant(1)), 40, true),
            (Some(key(1)), Some(tenant(1)), 1, false),
            (Some(key(2)), Some(tenant(1)), 11, false),
            (Some(key(2)), Some(tenant(1)), 10, true),
            (Some(key(3)), Some(tenant(2)), 40, true),
            (Some(key(4)), Some(tenant(2)), 10, true),
            (Some(key(5)), Some(tenant(3)), 1, false),
            (None, None, 1, false),
        ] {
            match uploads.reserve(own, group, bytes) {
                Ok(reservation) => held.push(reservation),
                Err(fault) => assert!(matches!(fault, Fault::Unavailable { .. })),
            }
            let sum: u64 = held.iter().map(|reservation| reservation.bytes).sum();
            assert_eq!(uploads.reserved(), sum, "a refusal reserves nothing");
            assert_eq!(held.last().is_some_and(|last| last.bytes == bytes as u64), granted, "{bytes}");
        }
        held.clear();
        assert_eq!((uploads.reserved(), uploads.by_account.len()), (0, 0));
    }

    #[test]
    fn a_shorter_body_returns_the_rest_of_its_reservation() {
        let uploads = uploads();
        let mut first = uploads.reserve(Some(key(1)), Some(tenant(1)), 40).unwrap();
        first.shrink_to(3);
        assert_eq!(uploads.reserved(), 3);
        let second = uploads.reserve(Some(key(1)), Some(tenant(1)), 37).unwrap();
        drop((first, second));
        assert_eq!((uploads.reserved(), uploads.by_account.len()), (0, 0));
    }
}
