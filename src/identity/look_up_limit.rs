//! The bounds on look-ups of keys that are not known to be issued, so that forged keys take no capacity from others.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::cache::LoadLimiter;
use crate::model::fault::Fault;

/// Bounds the look-ups of all addresses together: their rate, and one at a time.
#[derive(Debug)]
pub(super) struct LookUpLimit {
    rate: DefaultDirectRateLimiter,
    limiter: LoadLimiter,
}

impl LookUpLimit {
    pub(super) fn new(per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        Self { rate: RateLimiter::direct(Quota::per_second(rate)), limiter: LoadLimiter::new(1) }
    }

    /// Takes one look-up from the rate; returns the limiter of the load.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if the rate is exhausted.
    pub(super) fn take(&self) -> Result<&LoadLimiter, Fault> {
        self.rate.check().map(|()| &self.limiter).map_err(|_| Fault::BUSY)
    }
}
