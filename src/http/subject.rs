//! What the requests of a caller are charged to.

use crate::identity::grant::Caller;
use crate::quota::limits::RateLimitSubject;
use crate::quota::usage::QuotaSubject;

impl<'a> From<&'a Caller> for RateLimitSubject<'a> {
    fn from(caller: &'a Caller) -> Self {
        let Caller { tenant, agent, limits, .. } = caller;
        Self { credential: caller.credential(), tenant: *tenant, agent: *agent, limits }
    }
}

impl<'a> From<&'a Caller> for QuotaSubject<'a> {
    fn from(caller: &'a Caller) -> Self {
        let Caller { tenant, agent, limits, .. } = caller;
        Self { agent: *agent, tenant: *tenant, limits, own: caller.is_own() }
    }
}
