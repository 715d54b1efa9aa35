//! How much of the gateway one may use at a time: rates, and requests under way.
//!
//! Whoever is let in by a key of the agent's, or of its tenant's, is charged to the key, the agent and the tenant;
//! strangers at a public agent to what they have in common there, besides their own key or address, so that they cannot
//! use up what its owners have. What is refused for its credential is charged to the address that it came from, and to
//! nothing else: nobody can use up what is another's, nor find out by trying whether there is anything.

mod administration;
mod admission;
mod bucket;
mod standing;
mod table;
mod uploads;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};

pub use self::admission::{Admission, UnderWay};
pub use self::standing::{Standing, retry_after, tell};
use self::table::{Left, Limiter, Refused, Table};
use self::uploads::Uploads;
pub use self::uploads::{Reservation, UploadOptions};
use super::body::BodyPace;
use crate::model::agent::AccessLimits;
use crate::model::caller::Credential;
use crate::model::client_address::ClientAddress;
use crate::model::fault::{Fault, LimitScope, Limited};
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::limits::Rate;
use crate::registry::access::Caller;
use crate::registry::look_up::Recognition;

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
    /// What bodies may take.
    pub uploads: UploadOptions,
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

impl Asker<'_> {
    /// Whether the credential is one of the agent or of its tenant.
    pub fn is_own(&self) -> bool {
        self.credential.is_some_and(|credential| credential.reaches(self.tenant, self.agent))
    }
}

/// The limits of this replica.
#[derive(Debug)]
pub struct Limits<C: Clock + Clone = DefaultClock> {
    holders: Table<Holder, C>,
    addresses: Table<ClientAddress, C>,
    look_ups: Table<ClientAddress, C>,
    /// Keys and tenants on the administration surface.
    calls: Table<Holder, C>,
    /// Addresses there, of calls that need no credential.
    visits: Table<ClientAddress, C>,
    uploads: Arc<Uploads>,
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
    /// Bytes that are reserved for request bodies.
    pub upload_bytes: u64,
}

impl Limits {
    /// Limits by the clock of the machine.
    pub fn new(options: LimitOptions) -> Self {
        Self::with_clock(options, DefaultClock::default())
    }
}

impl<C: Clock + Clone> Limits<C> {
    fn with_clock(options: LimitOptions, clock: C) -> Self {
        let start = clock.now();
        let holders = Table::new(options.remembered, options.key, (clock.clone(), start));
        let addresses = Table::new(options.remembered, options.address, (clock.clone(), start));
        let look_ups = Table::new(options.remembered, options.look_ups, (clock.clone(), start));
        let calls = Table::new(options.remembered, options.key, (clock.clone(), start));
        let visits = Table::new(options.remembered, options.address, (clock, start));
        let uploads = Uploads::new(options.uploads);
        let (refused, shed) = (Default::default(), AtomicU64::new(0));
        Self { holders, addresses, look_ups, calls, visits, uploads, options, refused, shed }
    }

    /// What was refused so far, and who is remembered.
    pub fn stats(&self) -> LimitStats {
        let refused = LimitScope::ALL.map(|scope| (scope, self.refused_of(scope).load(Ordering::Relaxed)));
        let shed = self.shed.load(Ordering::Relaxed);
        let holders = self.holders.len() + self.calls.len();
        let addresses = self.addresses.len() + self.visits.len();
        LimitStats { refused, shed, holders, addresses, upload_bytes: self.uploads.reserved() }
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

    /// Whom a request is charged to besides its address, and at which rate.
    fn holders(&self, asker: &Asker<'_>) -> [Option<(LimitScope, Holder, Option<Rate>)>; 3] {
        let own = asker.is_own();
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
        limiter.take(NonZeroU32::MIN, self.addresses.now()).map(drop).map_err(|refused| {
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
                let taken = limiter.take(NonZeroU32::MIN, self.look_ups.now()).map(drop);
                taken.map_err(|refused| self.refuse(LimitScope::Address, 1, refused))
            }
        }
    }

    /// How slowly a body may arrive.
    pub fn pace(&self) -> BodyPace {
        self.uploads.pace()
    }

    /// Whether an address is given nothing for now.
    pub fn is_barred(&self, client: ClientAddress) -> bool {
        self.options.address.is_some() && self.addresses.barred(client.network()).is_some()
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
