//! Rate limits, requests in flight and upload memory, by key, agent, tenant and address.
//!
//! A request with a key of the agent or of its tenant is charged to the key, the agent and the tenant. Anonymous callers
//! of a public agent share one limiter there, in addition to their own key or address, so that they cannot exhaust the
//! rates of its owners. A request refused for its credential is charged to its address only: it can neither exhaust the
//! limits of another caller nor probe whether an object exists.

mod admission;
mod body_memory;
mod limiter;
mod refusal;
mod table;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};

pub use self::admission::{Admission, CallInFlight, CallerLimiters, WorkPermit};
use self::body_memory::BodyMemory;
pub use self::body_memory::{BodyMemoryOptions, BodyPace, BodyReservation};
pub use self::limiter::RateLimitStatus;
use self::limiter::{DefaultPolicies, LimitRefusal, LimiterClock, seconds_to_restore};
use self::refusal::refusal;
pub use self::refusal::{retry_after, write_refusal};
use self::table::Table;
use crate::model::agent::AccessLimits;
use crate::model::caller::{Credential, Recognition};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, TenantId};
use crate::model::limits::{LimitScope, Rate};

/// The default limits.
#[derive(Debug, Clone)]
pub struct LimitOptions {
    /// The rate of one key.
    pub key: Option<Rate>,
    /// The rate of one agent, and of all anonymous callers of a public one.
    pub agent: Option<Rate>,
    /// The rate of one tenant.
    pub tenant: Option<Rate>,
    /// The rate of one address, for requests without a valid credential.
    pub address: Option<Rate>,
    /// The maximum number of requests in flight of one key, and of one address without a key.
    pub concurrent_per_key: u32,
    /// The maximum number of requests in flight at one agent.
    pub concurrent_per_agent: u32,
    /// The rate at which keys that are not known to be issued are looked up for one address.
    pub look_ups: Option<Rate>,
    /// How long an address is refused after it exhausted its rate.
    pub penalty: Duration,
    /// The maximum number of limiters of keys, agents and tenants, and as many of addresses.
    pub remembered: usize,
    /// The memory of request bodies.
    pub uploads: BodyMemoryOptions,
}

impl LimitOptions {
    fn default_rate(&self, scope: LimitScope) -> Option<Rate> {
        match scope {
            LimitScope::Key => self.key,
            LimitScope::Agent => self.agent,
            LimitScope::Tenant => self.tenant,
            LimitScope::Address => self.address,
        }
    }
}

/// The subject of a limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LimiterKey {
    Key(KeyId),
    Agent(AgentId),
    /// All anonymous callers of a public agent.
    Anonymous(AgentId),
    Tenant(TenantId),
    /// The requests to the hooks of a tenant.
    Deliveries(TenantId),
}

/// The subjects that a request is charged to, in addition to its address.
#[derive(Debug, Clone, Copy)]
pub struct RateLimitSubject<'a> {
    /// The credential; `None` without one.
    pub credential: Option<&'a Credential>,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The limits of both.
    pub limits: &'a AccessLimits,
    /// Whether the credential belongs to the agent or to its tenant.
    pub is_own: bool,
    /// The limiters of a cached caller: of the credential, which it has, and of the agent and the tenant.
    pub limiters: Option<&'a CallerLimiters>,
}

/// The limits of this replica.
#[derive(Debug)]
pub struct Limits<C: Clock + Clone = DefaultClock> {
    clock: LimiterClock<C>,
    holders: Table<LimiterKey, C>,
    addresses: Table<ClientAddress, C>,
    look_ups: Table<ClientAddress, C>,
    /// The limiters of keys and tenants on the administration API.
    calls: Table<LimiterKey, C>,
    /// The limiters of addresses on the administration API, for calls that need no credential.
    visits: Table<ClientAddress, C>,
    /// The memory of bodies.
    uploads: Arc<BodyMemory>,
    /// The memory of unsent answers.
    answers: Arc<BodyMemory>,
    options: LimitOptions,
    policies: DefaultPolicies,
    /// By [`LimitScope`].
    refused: [AtomicU64; LimitScope::ALL.len()],
    shed: AtomicU64,
}

/// The state of the limits, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitStats {
    /// Refusals, by the scope of the exhausted rate.
    pub refused: [(LimitScope, u64); LimitScope::ALL.len()],
    /// Requests refused because too many were in flight.
    pub shed: u64,
    /// Limiters of keys, agents and tenants in memory.
    pub holders: usize,
    /// Limiters of addresses in memory.
    pub addresses: usize,
    /// Bytes that are reserved for request bodies and unsent answers.
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
        let clock = LimiterClock::new(clock);
        let holders = Table::new(options.remembered, clock.clone());
        let addresses = Table::new(options.remembered, clock.clone());
        let look_ups = Table::new(options.remembered, clock.clone());
        let calls = Table::new(options.remembered, clock.clone());
        let visits = Table::new(options.remembered, clock.clone());
        let (uploads, answers) = (BodyMemory::new(options.uploads), BodyMemory::of_answers(options.uploads));
        let policies = DefaultPolicies::new(|scope| options.default_rate(scope));
        let (refused, shed) = (Default::default(), AtomicU64::new(0));
        Self {
            clock,
            holders,
            addresses,
            look_ups,
            calls,
            visits,
            uploads,
            answers,
            options,
            policies,
            refused,
            shed,
        }
    }

    /// The state of the limits, for metrics.
    pub fn stats(&self) -> LimitStats {
        let refused = LimitScope::ALL.map(|scope| (scope, self.refused_of(scope).load(Ordering::Relaxed)));
        let shed = self.shed.load(Ordering::Relaxed);
        let holders = self.holders.len() + self.calls.len();
        let addresses = self.addresses.len() + self.visits.len();
        let upload_bytes = self.uploads.reserved() + self.answers.reserved();
        LimitStats { refused, shed, holders, addresses, upload_bytes }
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

    fn refuse(&self, scope: LimitScope, cost: u32, refused: LimitRefusal) -> Fault {
        self.refused_of(scope).fetch_add(1, Ordering::Relaxed);
        refusal(scope, cost, refused)
    }

    /// The limiters that a request is charged to in addition to its address, with their rates.
    fn holders(&self, subject: &RateLimitSubject<'_>) -> [Option<(LimitScope, LimiterKey, Option<Rate>)>; 3] {
        let own = subject.is_own;
        let key = subject.credential.map(|credential| {
            let rate = credential.limits.effective(self.options.key);
            (LimitScope::Key, LimiterKey::Key(credential.key), rate)
        });
        let counted = subject.limits.quota_holder;
        let agent = if own { LimiterKey::Agent(counted) } else { LimiterKey::Anonymous(counted) };
        let agent = (LimitScope::Agent, agent, subject.limits.agent.rate().effective(self.options.agent));
        let tenant = own.then(|| {
            let rate = subject.limits.tenant.rate().effective(self.options.tenant);
            (LimitScope::Tenant, LimiterKey::Tenant(subject.tenant), rate)
        });
        [key, Some(agent), tenant]
    }

    /// Checks that a request with a credential could be charged now. Charges nothing.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn would_charge(&self, subject: &RateLimitSubject<'_>, cost: u32) -> Result<(), Fault> {
        for (scope, holder, rate) in self.holders(subject).into_iter().flatten() {
            if let Some(rate) = rate
                && let Some(left) = self.holders.left(holder, rate).filter(|left| *left < cost)
            {
                let wait = Duration::from_secs(seconds_to_restore(cost - left, rate).into());
                return Err(refusal(scope, cost, LimitRefusal { rate, wait: Some(wait) }));
            }
        }
        Ok(())
    }

    /// Charges a refused credential to its address, which is refused for a while once its rate is exhausted.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_failure(&self, client: ClientAddress) -> Result<(), Fault> {
        self.check_address(client)?;
        let limiter = self.addresses.of(client.network(), self.options.address);
        let now = self.clock.now();
        limiter.take(NonZeroU32::MIN, now).map(drop).map_err(|refused| {
            limiter.bar(self.options.penalty, now);
            let wait = refused.wait.map(|wait| wait.max(self.options.penalty));
            self.refuse(LimitScope::Address, 1, LimitRefusal { wait, ..refused })
        })
    }

    /// Admits a credential to verification. A key that is not known to be issued is charged to its address before it is
    /// looked up; a recognized credential is admitted even from an address with a penalty.
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
                let taken = limiter.take(NonZeroU32::MIN, self.clock.now()).map(drop);
                taken.map_err(|refused| self.refuse(LimitScope::Address, 1, refused))
            }
        }
    }

    /// Whether an address has a penalty.
    pub fn is_barred(&self, client: ClientAddress) -> bool {
        self.options.address.is_some() && self.addresses.barred(client.network()).is_some()
    }

    /// Checks that an address may present a credential that is not known to be valid, or none.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    fn check_address(&self, client: ClientAddress) -> Result<(), Fault> {
        match (self.addresses.barred(client.network()), self.options.address) {
            (Some(wait), Some(rate)) => {
                Err(self.refuse(LimitScope::Address, 1, LimitRefusal { rate, wait: Some(wait) }))
            }
            _ => Ok(()),
        }
    }
}
