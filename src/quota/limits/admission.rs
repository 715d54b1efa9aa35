//! A request from its admission to its answer: the limiters that it is charged to, and the permits that it holds. Its limiters
//! are remembered with its caller: looking them up by key, agent and tenant takes longer than charging them. The
//! limiters of the administration API are separate, so that writes are not charged to the rates of readers.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use governor::clock::{Clock, DefaultClock};

use super::body_memory::{BodyAccount, BodyPace, BodyReservation};
use super::limiter::{Limiter, RateLimitStatus, RatePolicy, UnitsLeft};
use super::{LimiterKey, Limits, RateLimitSubject};
use crate::model::allocated::behind_arc;
use crate::model::caller::Credential;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::limits::LimitScope;

/// The limiters that a request is charged to: of the key or the address, of the agent, and of the tenant if the credential
/// belongs to it.
type ChargedLimiters = [Option<(LimitScope, Arc<Limiter>)>; 3];

/// The same, without keeping them in memory.
type WeakLimiters = [Option<(LimitScope, Weak<Limiter>)>; 3];

/// The limiters that the first request of a caller was charged to.
#[derive(Debug, Default)]
pub struct CallerLimiters {
    found: OnceLock<WeakLimiters>,
    is_outdated: AtomicBool,
}

impl CallerLimiters {
    /// The most memory that remembered limiters take which their table has dropped.
    pub const MOST_RETAINED: usize = 3 * behind_arc(size_of::<Limiter>());

    /// Whether a table has dropped or replaced one of them: they are looked up for each request then, until the caller is
    /// decided on again.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Loads the memory of the limiters. Returns what was read, so that the compiler keeps the loads.
    pub fn touch(&self) -> usize {
        let found = self.found.get().into_iter().flatten().flatten();
        found.map(|(_, limiter)| limiter.strong_count()).sum()
    }

    /// The limiters; `None` before they are found, and if a table no longer has one of them.
    fn get(&self) -> Option<ChargedLimiters> {
        let current = current(self.found.get()?);
        if current.is_none() {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        current
    }

    /// Remembers the limiters that were found first, unless subjects that have no limiter of their own share one of them.
    fn remember(&self, charged: &ChargedLimiters) {
        if self.found.get().is_some() || charged.iter().flatten().any(|(_, limiter)| limiter.is_retired()) {
            return;
        }
        let weak = |found: &Option<(LimitScope, Arc<Limiter>)>| {
            found.as_ref().map(|(scope, limiter)| (*scope, Arc::downgrade(limiter)))
        };
        self.found.get_or_init(|| charged.each_ref().map(weak));
    }
}

/// The limiters, if the tables have all of them.
fn current(found: &WeakLimiters) -> Option<ChargedLimiters> {
    let mut charged = [const { None }; 3];
    for (slot, found) in charged.iter_mut().zip(found) {
        if let Some((scope, limiter)) = found {
            *slot = Some((*scope, limiter.upgrade()?));
        }
    }
    // The references are taken before it is read whether the limiters are retired.
    fence(Ordering::SeqCst);
    let is_retired = |(_, limiter): &(_, Arc<Limiter>)| limiter.is_retired();
    (!charged.iter().flatten().any(is_retired)).then_some(charged)
}

/// A request in flight, with the limiters that it is charged to.
#[derive(Debug)]
pub struct Admission<'l, C: Clock + Clone = DefaultClock> {
    limits: &'l Limits<C>,
    charged: ChargedLimiters,
    accounts: [BodyAccount; 2],
}

/// The request is no longer in flight of its key or its address.
impl<C: Clock + Clone> Drop for Admission<'_, C> {
    fn drop(&mut self) {
        if let Some((_, limiter)) = &self.charged[0] {
            limiter.leave();
        }
    }
}

/// Counts a request in flight at its agent, until dropped.
#[derive(Debug)]
pub struct WorkPermit<'a>(Option<&'a Limiter>);

impl Drop for WorkPermit<'_> {
    fn drop(&mut self) {
        if let Some(limiter) = self.0 {
            limiter.leave();
        }
    }
}

/// Counts a call in flight of a key, until dropped.
#[derive(Debug)]
pub struct CallInFlight(Arc<Limiter>);

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<C: Clock + Clone> Limits<C> {
    /// Admits a request.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if too many requests of its key, or of its address without a key, are in flight.
    pub fn admit(
        &self,
        subject: &RateLimitSubject<'_>,
        client: ClientAddress,
    ) -> Result<Admission<'_, C>, Fault> {
        let known = subject.limiters.and_then(CallerLimiters::get);
        let charged = known.unwrap_or_else(|| self.find(subject, client));
        self.enter(limiter_of(charged[0].as_ref()), self.options.concurrent_per_key)?;
        let key = subject.credential.map(|credential| BodyAccount::Key(credential.key));
        let group = if subject.is_own {
            BodyAccount::Tenant(subject.tenant)
        } else {
            BodyAccount::Anonymous(subject.agent)
        };
        let accounts = [key.unwrap_or_else(|| BodyAccount::Address(client.network())), group];
        Ok(Admission { limits: self, charged, accounts })
    }

    /// Looks up the limiters that a request is charged to.
    fn find(&self, subject: &RateLimitSubject<'_>, client: ClientAddress) -> ChargedLimiters {
        let [key, agent, tenant] = self.holders(subject);
        let found =
            |holder: Option<_>| holder.map(|(scope, holder, rate)| (scope, self.holders.of(holder, rate)));
        let address = || (LimitScope::Address, self.addresses.of(client.network(), self.options.address));
        let charged = [found(key).or_else(|| Some(address())), found(agent), found(tenant)];
        if let Some(limiters) = subject.limiters {
            limiters.remember(&charged);
        }
        charged
    }

    /// Reserves memory for a body on the administration API; for the operator only within the bound of the process, for a
    /// request that needs no credential within those of its address and of all such requests.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn reserve(
        &self,
        credential: Option<&Credential>,
        visitor: Option<ClientAddress>,
        bytes: usize,
    ) -> Result<BodyReservation, Fault> {
        let (own, group) = match (credential, visitor) {
            (Some(credential), _) => {
                (Some(BodyAccount::Key(credential.key)), Some(BodyAccount::Tenant(credential.tenant)))
            }
            (None, Some(client)) => (Some(BodyAccount::Address(client)), Some(BodyAccount::Visitors)),
            (None, None) => (None, None),
        };
        self.uploads.reserve(own, group, bytes)
    }

    /// Reserves memory for a complete answer to a credential, or to the operator, but at most half of what one credential may
    /// have: an answer is longer than the body that it was made of, and must not be refused for that, nor while another is
    /// sent. Apart from the memory of bodies: an answer is held for as long as its client takes to read it, and must not keep
    /// bodies from arriving.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn reserve_answer(
        &self,
        credential: Option<&Credential>,
        bytes: usize,
    ) -> Result<BodyReservation, Fault> {
        let most = usize::try_from(self.answers.options().per_key / 2).unwrap_or(usize::MAX);
        let own = credential.map(|credential| BodyAccount::Key(credential.key));
        let group = credential.map(|credential| BodyAccount::Tenant(credential.tenant));
        self.answers.reserve(own, group, bytes.min(most))
    }

    /// The minimum rate of a body.
    pub fn pace(&self) -> BodyPace {
        self.options.uploads.pace
    }

    fn enter(&self, limiter: Option<&Limiter>, most: u32) -> Result<(), Fault> {
        if limiter.is_none_or(|limiter| limiter.enter(most)) {
            return Ok(());
        }
        self.shed.fetch_add(1, Ordering::Relaxed);
        Err(Fault::BUSY)
    }

    /// Charges a cost to all of these limiters in order; the first exhausted one refuses, and the ones after it are not
    /// charged. Returns the status of the limiter with the fewest units left.
    pub(super) fn charge<'c>(
        &self,
        charged: impl Iterator<Item = &'c (LimitScope, Arc<Limiter>)>,
        cost: u32,
        now: u64,
    ) -> Result<Option<RateLimitStatus>, Fault> {
        let Some(cost) = NonZeroU32::new(cost) else { return Ok(None) };
        let mut least: Option<(LimitScope, &Limiter, UnitsLeft)> = None;
        for (scope, limiter) in charged {
            let taken = limiter.take(cost, now);
            let left = taken.map_err(|refused| self.refuse(*scope, cost.get(), refused))?;
            if let Some(left) = left
                && least.is_none_or(|(.., least)| left.units < least.units)
            {
                least = Some((*scope, limiter, left));
            }
        }
        Ok(least.map(|(scope, limiter, UnitsLeft { rate, units: left })| {
            let of_limiter = || RatePolicy::new(scope, rate, limiter.policy_header(scope, rate));
            RateLimitStatus { policy: self.policies.get(scope, rate).unwrap_or_else(of_limiter), left }
        }))
    }
}

impl<C: Clock + Clone> Admission<'_, C> {
    /// Charges the cost of the request. Returns the status of the limiter with the fewest units left.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge(&self, cost: u32) -> Result<Option<RateLimitStatus>, Fault> {
        self.limits.charge(self.charged.iter().flatten(), cost, self.limits.clock.now())
    }

    /// Checks that this cost could be charged now. Charges nothing.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn check(&self, cost: NonZeroU32) -> Result<(), Fault> {
        let now = self.limits.clock.now();
        self.charged.iter().flatten().try_for_each(|(scope, limiter)| {
            limiter.check(cost, now).map_err(|refused| self.limits.refuse(*scope, cost.get(), refused))
        })
    }

    /// Counts the request among those in flight at its agent. Called once the body has arrived: a slow client must not
    /// hold a permit that all callers of the agent share.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if there are too many.
    pub fn begin_work(&self) -> Result<WorkPermit<'_>, Fault> {
        let agent = limiter_of(self.charged[1].as_ref());
        self.limits.enter(agent, self.limits.options.concurrent_per_agent)?;
        Ok(WorkPermit(agent))
    }

    /// Reserves memory for the body.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn reserve(&self, bytes: usize) -> Result<BodyReservation, Fault> {
        let [own, group] = self.accounts;
        self.limits.uploads.reserve(Some(own), Some(group), bytes)
    }
}

impl<C: Clock + Clone> Limits<C> {
    /// Counts a call among those of its key in flight.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if there are too many.
    pub fn admit_call(&self, credential: &Credential) -> Result<CallInFlight, Fault> {
        let (_, key) = self.key_of(credential);
        self.enter(Some(&key), self.options.concurrent_per_key)?;
        Ok(CallInFlight(key))
    }

    /// Charges a call to its key, then to the tenant of the key. Returns the status of the limiter with the fewest
    /// units left.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_call(&self, credential: &Credential, cost: u32) -> Result<Option<RateLimitStatus>, Fault> {
        let tenant = self.calls.of(LimiterKey::Tenant(credential.tenant), self.options.tenant);
        let charged = [self.key_of(credential), (LimitScope::Tenant, tenant)];
        self.charge(charged.iter(), cost, self.clock.now())
    }

    /// Charges a request to a hook to the tenant of the hook, apart from what the tenant's own keys call: a sender cannot
    /// exhaust that. A cost above the burst takes all of it.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_delivery(&self, tenant: TenantId, cost: u32) -> Result<(), Fault> {
        let rate = self.options.tenant;
        let limiter = self.calls.of(LimiterKey::Deliveries(tenant), rate);
        let cost = rate.map_or(cost, |rate| cost.min(rate.burst.get()));
        self.charge([(LimitScope::Tenant, limiter)].iter(), cost, self.clock.now()).map(drop)
    }

    /// Charges a call that needs no credential to its address.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_visit(&self, client: ClientAddress, cost: u32) -> Result<Option<RateLimitStatus>, Fault> {
        let address = self.visits.of(client.network(), self.options.address);
        self.charge([(LimitScope::Address, address)].iter(), cost, self.clock.now())
    }

    /// Charges a request to an agent that the credential belongs to but may not use to its key. Returns the status of its
    /// limiter.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_refused(
        &self,
        credential: &Credential,
        cost: u32,
    ) -> Result<Option<RateLimitStatus>, Fault> {
        let rate = credential.limits.effective(self.options.key);
        let key = self.holders.of(LimiterKey::Key(credential.key), rate);
        self.charge([(LimitScope::Key, key)].iter(), cost, self.clock.now())
    }

    fn key_of(&self, credential: &Credential) -> (LimitScope, Arc<Limiter>) {
        let rate = credential.limits.effective(self.options.key);
        (LimitScope::Key, self.calls.of(LimiterKey::Key(credential.key), rate))
    }
}

/// The limiter, without the scope of its rate.
fn limiter_of(charged: Option<&(LimitScope, Arc<Limiter>)>) -> Option<&Limiter> {
    charged.map(|(_, limiter)| &**limiter)
}

#[cfg(test)]
mod tests;
