//! How much of the gateway one may use at a time: rates, and requests under way.
//!
//! Whoever is let in by a key of the agent's, or of its tenant's, is charged to the key, the agent and the tenant;
//! strangers at a public agent to what they have in common there, besides their own key or address, so that they cannot
//! use up what its owners have. What is refused for its credential is charged to the address that it came from, and to
//! nothing else: nobody can use up what is another's, nor find out by trying whether there is anything.

mod standing;
mod table;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};

pub use self::standing::{Standing, retry_after, tell};
use self::table::{Left, Limiter, Refused, Table};
use crate::model::agent::AccessLimits;
use crate::model::caller::Credential;
use crate::model::client_address::ClientAddress;
use crate::model::fault::{Fault, LimitScope, Limited};
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::limits::Rate;
use crate::registry::access::Caller;
use crate::registry::look_up::Recognition;

/// Whoever is shed may try again at once, or nearly.
const SHED: Fault = Fault::Unavailable { retry_after: Duration::from_secs(1) };

/// What holds where nothing else was set for somebody.
#[derive(Debug, Clone)]
pub struct LimitOptions {
    /// The rate of one key.
    pub key: Option<Rate>,
    /// The rate of one agent, and of all strangers at a public one.
    pub agent: Option<Rate>,
    /// The rate of one tenant.
    pub tenant: Option<Rate>,
    /// The rate of one address, of those who have no credential or none that holds.
    pub address: Option<Rate>,
    /// Requests of one key under way, and of one address without one.
    pub concurrent_per_key: u32,
    /// Requests under way at one agent.
    pub concurrent_per_agent: u32,
    /// The rate at which keys that are not known to be issued are looked up for one address.
    pub look_ups: Option<Rate>,
    /// For how long an address that used up its rate is given nothing.
    pub penalty: Duration,
    /// Keys, agents and tenants that are remembered, and as many addresses.
    pub remembered: usize,
}

/// Whom a limiter limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Key(KeyId),
    Agent(AgentId),
    /// Those who read a public agent that is not theirs.
    Strangers(AgentId),
    Tenant(TenantId),
}

/// Whose request it is, and of what.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// With what; `None` for anybody at a public agent.
    pub credential: Option<&'a Credential>,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// What was set for both.
    pub limits: &'a AccessLimits,
}

impl<'a> From<&'a Caller> for Asker<'a> {
    fn from(caller: &'a Caller) -> Self {
        let credential = caller.grant.as_ref().map(|grant| &grant.credential);
        Self { credential, tenant: caller.tenant, agent: caller.agent, limits: &caller.limits }
    }
}

/// The limits of this replica.
#[derive(Debug)]
pub struct Limits<C: Clock + Clone = DefaultClock> {
    holders: Table<Holder, C>,
    addresses: Table<ClientAddress, C>,
    look_ups: Table<ClientAddress, C>,
    options: LimitOptions,
    /// By [`LimitScope`].
    refused: [AtomicU64; LimitScope::ALL.len()],
    shed: AtomicU64,
}

/// What was refused so far, and who is remembered, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStats {
    /// Refusals by whose rate was used up.
    pub refused: [(LimitScope, u64); LimitScope::ALL.len()],
    /// Requests that were one too many under way.
    pub shed: u64,
    /// Keys, agents and tenants that are remembered.
    pub holders: usize,
    /// Addresses that are remembered.
    pub addresses: usize,
}

/// A request that is under way, with what it is charged to.
#[derive(Debug)]
pub struct Admission<'l, C: Clock + Clone = DefaultClock> {
    limits: &'l Limits<C>,
    charged: [Option<(LimitScope, Arc<Limiter<C>>)>; 3],
}

impl<C: Clock + Clone> Drop for Admission<'_, C> {
    fn drop(&mut self) {
        for limiter in self.counted() {
            limiter.leave();
        }
    }
}

impl<C: Clock + Clone> Admission<'_, C> {
    /// Takes what the request costs from everybody that it is charged to, the nearest first: who has nothing left takes
    /// nothing from the others. Answers what is left where the least is.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge(&self, cost: u32) -> Result<Option<Standing>, Fault> {
        let Some(cost) = NonZeroU32::new(cost) else { return Ok(None) };
        let mut least: Option<(LimitScope, &Limiter<C>, Left)> = None;
        for (scope, limiter) in self.charged.iter().flatten() {
            let taken = limiter.take(cost, self.limits.holders.clock());
            let left = taken.map_err(|refused| self.limits.refuse(*scope, cost.get(), refused))?;
            if let Some(left) = left
                && least.is_none_or(|(.., least)| left.units < least.units)
            {
                least = Some((*scope, limiter, left));
            }
        }
        Ok(least.map(|(scope, limiter, Left { rate, units: left })| Standing {
            scope,
            rate,
            left,
            policy: limiter.policy(scope, rate),
        }))
    }

    /// Those of which there may be only so many requests under way: all but the tenant.
    fn counted(&self) -> impl Iterator<Item = &Arc<Limiter<C>>> {
        self.charged[..2].iter().flatten().map(|(_, limiter)| limiter)
    }
}

impl Limits {
    /// Limits by the clock of the machine.
    pub fn new(options: LimitOptions) -> Self {
        Self::with_clock(options, DefaultClock::default())
    }
}

impl<C: Clock + Clone> Limits<C> {
    fn with_clock(options: LimitOptions, clock: C) -> Self {
        let holders = Table::new(options.remembered, options.key, clock.clone());
        let addresses = Table::new(options.remembered, options.address, clock.clone());
        let look_ups = Table::new(options.remembered, options.look_ups, clock);
        Self { holders, addresses, look_ups, options, refused: Default::default(), shed: AtomicU64::new(0) }
    }

    /// What was refused so far, and who is remembered.
    pub fn stats(&self) -> LimitStats {
        let refused = LimitScope::ALL.map(|scope| (scope, self.refused_of(scope).load(Ordering::Relaxed)));
        let shed = self.shed.load(Ordering::Relaxed);
        LimitStats { refused, shed, holders: self.holders.len(), addresses: self.addresses.len() }
    }

    fn refused_of(&self, scope: LimitScope) -> &AtomicU64 {
        let [key, agent, tenant, address] = &self.refused;
        match scope {
            LimitScope::Key => key,
            LimitScope::Agent => agent,
            LimitScope::Tenant => tenant,
            LimitScope::Address => address,
        }
    }

    fn refuse(&self, scope: LimitScope, cost: u32, refused: Refused) -> Fault {
        self.refused_of(scope).fetch_add(1, Ordering::Relaxed);
        refusal(scope, cost, refused)
    }

    /// Lets in the request of a caller, unless too many are under way.
    ///
    /// # Errors
    /// [`Fault::Unavailable`].
    pub fn admit(&self, caller: &Caller, client: ClientAddress) -> Result<Admission<'_, C>, Fault> {
        let charged = self.charged(&Asker::from(caller), client);
        let bounds = [self.options.concurrent_per_key, self.options.concurrent_per_agent];
        for (nth, (most, charge)) in bounds.into_iter().zip(&charged).enumerate() {
            let entered = charge.as_ref().is_none_or(|(_, limiter)| limiter.enter(most));
            if !entered {
                charged[..nth].iter().flatten().for_each(|(_, limiter)| limiter.leave());
                self.shed.fetch_add(1, Ordering::Relaxed);
                return Err(SHED);
            }
        }
        Ok(Admission { limits: self, charged })
    }

    fn charged(
        &self,
        asker: &Asker<'_>,
        client: ClientAddress,
    ) -> [Option<(LimitScope, Arc<Limiter<C>>)>; 3] {
        let [key, agent, tenant] = self.holders(asker);
        let found = |holder: Option<(LimitScope, Holder, Option<Rate>)>| {
            holder.map(|(scope, holder, rate)| (scope, self.holders.of(holder, rate)))
        };
        let address = || (LimitScope::Address, self.addresses.of(client.network(), self.options.address));
        [found(key).or_else(|| Some(address())), found(agent), found(tenant)]
    }

    /// Whom a request is charged to besides its address, and at which rate.
    fn holders(&self, asker: &Asker<'_>) -> [Option<(LimitScope, Holder, Option<Rate>)>; 3] {
        let own = asker.credential.is_some_and(|credential| credential.reaches(asker.tenant, asker.agent));
        let key = asker.credential.map(|credential| {
            let rate = credential.limits.over(self.options.key);
            (LimitScope::Key, Holder::Key(credential.key), rate)
        });
        let counted = asker.limits.quota_holder;
        let agent = if own { Holder::Agent(counted) } else { Holder::Strangers(counted) };
        let agent = (LimitScope::Agent, agent, asker.limits.agent.rate().over(self.options.agent));
        let tenant = own.then(|| {
            let rate = asker.limits.tenant.rate().over(self.options.tenant);
            (LimitScope::Tenant, Holder::Tenant(asker.tenant), rate)
        });
        [key, Some(agent), tenant]
    }

    /// Whether a request with a credential would be charged without a refusal now. Takes nothing.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn would_charge(&self, asker: &Asker<'_>, cost: u32) -> Result<(), Fault> {
        for (scope, holder, rate) in self.holders(asker).into_iter().flatten() {
            if let Some(rate) = rate
                && let Some(left) = self.holders.left(holder, rate).filter(|left| *left < cost)
            {
                let wait = Duration::from_secs(rate.seconds(cost - left).into());
                return Err(refusal(scope, cost, Refused { rate, wait: Some(wait) }));
            }
        }
        Ok(())
    }

    /// Charges a refused credential to its address, which is given nothing for a while once it has nothing left.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_failure(&self, client: ClientAddress) -> Result<(), Fault> {
        self.check_address(client)?;
        let limiter = self.addresses.of(client.network(), self.options.address);
        limiter.take(NonZeroU32::MIN, self.addresses.clock()).map(drop).map_err(|refused| {
            self.addresses.bar(&limiter, self.options.penalty);
            let wait = refused.wait.map(|wait| wait.max(self.options.penalty));
            self.refuse(LimitScope::Address, 1, Refused { wait, ..refused })
        })
    }

    /// Admits a credential to be verified. A key that is not known to be issued is charged to its address before it is
    /// looked up; what is recognized passes, from a barred address too.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn admit_credential(&self, client: ClientAddress, recognition: Recognition) -> Result<(), Fault> {
        match recognition {
            Recognition::Recognized => Ok(()),
            Recognition::Unverified => self.check_address(client),
            Recognition::NotIssued => {
                self.check_address(client)?;
                let limiter = self.look_ups.of(client.network(), self.options.look_ups);
                let taken = limiter.take(NonZeroU32::MIN, self.look_ups.clock()).map(drop);
                taken.map_err(|refused| self.refuse(LimitScope::Address, 1, refused))
            }
        }
    }

    /// Whether an address may try a credential that is not known to hold, or none.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    fn check_address(&self, client: ClientAddress) -> Result<(), Fault> {
        match (self.addresses.barred(client.network()), self.options.address) {
            (Some(wait), Some(rate)) => {
                Err(self.refuse(LimitScope::Address, 1, Refused { rate, wait: Some(wait) }))
            }
            _ => Ok(()),
        }
    }
}

/// Only a batch costs more than may be had at once: no single request does, by configuration.
fn refusal(scope: LimitScope, cost: u32, refused: Refused) -> Fault {
    match refused.wait {
        Some(retry_after) => Fault::RateLimited { scope, limited: Limited::Rate(refused.rate), retry_after },
        None => Fault::InvalidRequest(Cow::Owned(format!(
            "this batch takes {cost} units at once, of which this {} never has more than {}: send it in parts",
            scope.as_str(),
            refused.rate.burst,
        ))),
    }
}
