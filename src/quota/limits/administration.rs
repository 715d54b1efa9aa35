//! Rate limits of the administration API. Its limiters are separate, so that writes are not charged to the rates of
//! readers.

use std::sync::Arc;

use governor::clock::Clock;

use super::{Holder, Limiter, Limits, RateLimitStatus, UnderWay};
use crate::model::caller::Credential;
use crate::model::client_address::ClientAddress;
use crate::model::fault::{Fault, LimitScope};

impl<C: Clock + Clone> Limits<C> {
    /// Counts a call among those of its key in flight.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if there are too many.
    pub fn admit_call(&self, credential: &Credential) -> Result<UnderWay, Fault> {
        self.enter(Some(&self.key_of(credential)), self.options.concurrent_per_key)
    }

    /// Charges a call to its key, then to the tenant of the key. Returns the status of the limiter with the fewest
    /// units left.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_call(&self, credential: &Credential, cost: u32) -> Result<Option<RateLimitStatus>, Fault> {
        let tenant = self.calls.of(Holder::Tenant(credential.tenant), self.options.tenant);
        let charged = [self.key_of(credential), (LimitScope::Tenant, tenant)];
        self.charge(charged.iter(), cost, self.calls.now())
    }

    /// Charges a call that needs no credential to its address.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_visit(&self, client: ClientAddress, cost: u32) -> Result<Option<RateLimitStatus>, Fault> {
        let address = self.visits.of(client.network(), self.options.address);
        self.charge([(LimitScope::Address, address)].iter(), cost, self.visits.now())
    }

    fn key_of(&self, credential: &Credential) -> (LimitScope, Arc<Limiter>) {
        let rate = credential.limits.over(self.options.key);
        (LimitScope::Key, self.calls.of(Holder::Key(credential.key), rate))
    }
}
