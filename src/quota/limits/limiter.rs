//! A limiter: a token bucket in one atomic word, by the generic cell rate algorithm, with the requests in flight of its subject;
//! and its state in the header fields `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
//!
//! `governor` has no operation that reads without taking, which is needed to refuse a request before its body is read.

use std::io::Write;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use governor::clock::{Clock, Reference};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::limits::{LimitScope, Rate};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The maximum length of an item: the longest name in quotation marks, and two parameters with numbers of 20 digits.
const MAX_ITEM: usize = 64;

/// The clock of limiters. All times of a limiter are its nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct LimiterClock<C: Clock> {
    clock: C,
    start: C::Instant,
}

impl<C: Clock> LimiterClock<C> {
    /// Counts from now on.
    pub(super) fn new(clock: C) -> Self {
        Self { start: clock.now(), clock }
    }

    /// The time since the start.
    pub(super) fn now(&self) -> u64 {
        self.clock.now().duration_since(self.start).as_u64()
    }
}

/// The state of one rate.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// The time in which one unit is restored.
    interval: u64,
    /// When all units are restored.
    full_at: AtomicU64,
}

/// Why units are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortage {
    /// They are available after this time.
    Until(Duration),
    /// They are never available: the burst is smaller.
    Never,
}

impl Bucket {
    /// A full bucket.
    fn new(rate: Rate) -> Self {
        let interval = SECOND / u64::from(rate.per_second.get());
        Self { rate, interval, full_at: AtomicU64::new(0) }
    }

    /// A bucket of another rate from which as many units are taken as from this one, even if that is more than its burst, so
    /// that setting a lower rate for a moment restores none.
    fn successor(&self, rate: Rate, now: u64) -> Self {
        let new = Self::new(rate);
        let used = u128::from(self.full_at.load(Ordering::Relaxed).saturating_sub(now));
        let scaled = used * u128::from(new.interval) / u128::from(self.interval);
        let restoring = u64::try_from(scaled).unwrap_or(u64::MAX);
        Self { full_at: AtomicU64::new(now.saturating_add(restoring)), ..new }
    }

    /// Takes units, all or none. Returns how many are left.
    ///
    /// # Errors
    /// [`Shortage`].
    fn take(&self, units: u32, now: u64) -> Result<u32, Shortage> {
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let after = self.after(full_at, units, now)?;
            let swapped =
                self.full_at.compare_exchange_weak(full_at, after, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(self.units(after, now)),
                Err(other) => full_at = other,
            }
        }
    }

    /// Whether units could be taken. Takes nothing.
    ///
    /// # Errors
    /// [`Shortage`].
    fn check(&self, units: u32, now: u64) -> Result<(), Shortage> {
        self.after(self.full_at.load(Ordering::Relaxed), units, now).map(drop)
    }

    /// How many units are left.
    fn left(&self, now: u64) -> u32 {
        self.units(self.full_at.load(Ordering::Relaxed), now)
    }

    /// Whether all units are left.
    fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }

    /// When all units would be restored after some more were taken.
    fn after(&self, full_at: u64, units: u32, now: u64) -> Result<u64, Shortage> {
        if units > self.rate.burst.get() {
            return Err(Shortage::Never);
        }
        let after = full_at.max(now) + self.interval * u64::from(units);
        match after.checked_sub(now + self.capacity()) {
            None | Some(0) => Ok(after),
            Some(early) => Err(Shortage::Until(Duration::from_nanos(early))),
        }
    }

    fn units(&self, full_at: u64, now: u64) -> u32 {
        let left = self.capacity().saturating_sub(full_at.saturating_sub(now)) / self.interval;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn capacity(&self) -> u64 {
        self.interval * u64::from(self.rate.burst.get())
    }
}

/// The state of one subject: what it used recently, and its requests in flight. One line of the processor's caches: a
/// limiter that was not used recently costs a request a cache miss.
#[derive(Debug)]
pub(super) struct Limiter {
    bucket: Option<Bucket>,
    /// Requests in flight, unless they are counted by a predecessor.
    in_flight: AtomicU32,
    /// Whether its table no longer has it.
    is_retired: AtomicBool,
    has_predecessor: bool,
    extras: OnceLock<Box<LimiterExtras>>,
}

/// What few limiters have.
#[derive(Debug, Default)]
struct LimiterExtras {
    /// The first limiter of the subject, which counts its requests in flight also when the rate has changed.
    predecessor: Option<Arc<Limiter>>,
    /// Until when every request of the subject is refused.
    barred_until: AtomicU64,
    /// The value of `RateLimit-Policy`, computed when it is first sent.
    policy: OnceLock<(LimitScope, HeaderValue)>,
}

const _: () = assert!(size_of::<Limiter>() + 2 * size_of::<usize>() <= 64, "with the counters of an `Arc`");

/// Too few units are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitRefusal {
    /// The exhausted rate.
    pub(super) rate: Rate,
    /// The time until the units are available; `None` if the burst is smaller.
    pub(super) wait: Option<Duration>,
}

impl LimitRefusal {
    fn new(rate: Rate, short: Shortage) -> Self {
        let wait = match short {
            Shortage::Until(wait) => Some(wait),
            Shortage::Never => None,
        };
        Self { rate, wait }
    }
}

/// The units that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnitsLeft {
    /// The rate.
    pub(super) rate: Rate,
    /// Units that are left now.
    pub(super) units: u32,
}

impl Limiter {
    /// An unused limiter of a subject.
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            bucket: rate.map(Bucket::new),
            in_flight: AtomicU32::new(0),
            is_retired: AtomicBool::new(false),
            has_predecessor: false,
            extras: OnceLock::new(),
        }
    }

    /// A limiter that several subjects share. It counts as retired, so that no caller remembers it.
    pub(super) fn shared(rate: Option<Rate>) -> Self {
        Self { is_retired: AtomicBool::new(true), ..Self::new(rate) }
    }

    fn extras(&self) -> &LimiterExtras {
        self.extras.get_or_init(Box::default)
    }

    /// The rate; `None` without a limit.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.bucket.as_ref().map(|bucket| bucket.rate)
    }

    /// The limiter that replaces this one when the rate changes. What was used stays used: otherwise an owner who may lower a
    /// rate could restore units by changing it.
    pub(super) fn successor(self: &Arc<Self>, rate: Option<Rate>, now: u64) -> Self {
        let first = Arc::clone(self.predecessor().unwrap_or(self));
        let extras = Box::new(LimiterExtras { predecessor: Some(first), ..LimiterExtras::default() });
        let bucket = rate.map(|rate| match &self.bucket {
            Some(bucket) => bucket.successor(rate, now),
            None => Bucket::new(rate),
        });
        Self { bucket, has_predecessor: true, extras: OnceLock::from(extras), ..Self::new(None) }
    }

    fn predecessor(&self) -> Option<&Arc<Self>> {
        if self.has_predecessor { self.extras.get()?.predecessor.as_ref() } else { None }
    }

    fn in_flight(&self) -> &AtomicU32 {
        self.predecessor().map_or(&self.in_flight, |first| &first.in_flight)
    }

    /// Takes units, all or none, at a time of the [clock](LimiterClock).
    pub(super) fn take(&self, units: NonZeroU32, now: u64) -> Result<Option<UnitsLeft>, LimitRefusal> {
        let Some(bucket) = &self.bucket else { return Ok(None) };
        let taken = bucket.take(units.get(), now);
        let rate = bucket.rate;
        taken.map(|units| Some(UnitsLeft { rate, units })).map_err(|short| LimitRefusal::new(rate, short))
    }

    /// Whether units could be taken. Takes nothing.
    pub(super) fn check(&self, units: NonZeroU32, now: u64) -> Result<(), LimitRefusal> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        bucket.check(units.get(), now).map_err(|short| LimitRefusal::new(bucket.rate, short))
    }

    /// The value of `RateLimit-Policy` for a scope. Subjects of several scopes may share one limiter.
    pub(super) fn policy_header(&self, scope: LimitScope, rate: Rate) -> HeaderValue {
        let (first, header) = self.extras().policy.get_or_init(|| (scope, policy_header(scope, rate)));
        if *first == scope { header.clone() } else { policy_header(scope, rate) }
    }

    /// Counts one more request in flight, unless the maximum is reached.
    pub(super) fn enter(&self, most: u32) -> bool {
        let entered = self.in_flight().fetch_add(1, Ordering::Relaxed) < most;
        if !entered {
            self.leave();
        }
        entered
    }

    /// Counts one request less in flight.
    pub(super) fn leave(&self) {
        self.in_flight().fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether its table no longer has it.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Records that its table no longer has it.
    pub(super) fn set_retired(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Whether a new limiter would behave the same: nothing used, nothing in flight.
    pub(super) fn is_unused(&self, now: u64) -> bool {
        let unused = self.bucket.as_ref().is_none_or(|bucket| bucket.is_full(now));
        unused && self.in_flight().load(Ordering::Relaxed) == 0 && self.barred(now).is_none()
    }

    /// The units that are left of a rate; `None` if it has another one.
    pub(super) fn left(&self, rate: Rate, now: u64) -> Option<u32> {
        self.bucket.as_ref().filter(|bucket| bucket.rate == rate).map(|bucket| bucket.left(now))
    }

    /// Refuses every request of the subject for a while.
    pub(super) fn bar(&self, time: Duration, now: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.extras().barred_until.fetch_max(now.saturating_add(nanos), Ordering::Relaxed);
    }

    /// The remaining time for which the subject is refused, if it is.
    pub(super) fn barred(&self, now: u64) -> Option<Duration> {
        let until = self.extras.get()?.barred_until.load(Ordering::Relaxed);
        until.checked_sub(now).filter(|left| *left > 0).map(Duration::from_nanos)
    }

    /// Retires it if only its table has it and it is unused; returns whether it did. What
    /// [remembers](super::CallerLimiters) a limiter reads whether it is retired after taking a reference to it, so that at
    /// least one of the two sees the write of the other, and a subject never has two limiters in use. The acquire fence makes
    /// visible what a dropped reference has used.
    pub(super) fn retire(self: &Arc<Self>, now: u64) -> bool {
        self.is_retired.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let retired = Arc::strong_count(self) == 1 && {
            fence(Ordering::Acquire);
            self.is_unused(now)
        };
        self.is_retired.store(retired, Ordering::Relaxed);
        retired
    }
}

/// A rate, and its name and value in header fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RatePolicy {
    /// The name of the scope of the rate.
    name: &'static str,
    rate: Rate,
    /// `RateLimit-Policy`.
    header: HeaderValue,
}

impl RatePolicy {
    pub(super) fn new(scope: LimitScope, rate: Rate, header: HeaderValue) -> Self {
        Self { name: scope.as_str(), rate, header }
    }
}

/// The state of a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub(super) policy: RatePolicy,
    /// Units that are left now.
    pub(super) left: u32,
}

impl RateLimitStatus {
    /// Adds `RateLimit` and `RateLimit-Policy` to the headers of an answer, unless it is a refusal, which has those of the
    /// exceeded limit.
    pub fn write(self, headers: &mut HeaderMap) {
        if headers.contains_key(RATE_LIMIT) {
            return;
        }
        let RatePolicy { name, rate, header } = self.policy;
        let reset = seconds_to_restore(rate.burst.get().saturating_sub(self.left), rate).into();
        headers.insert(RATE_LIMIT_POLICY, header);
        headers.insert(RATE_LIMIT, rate_limit_header(name, self.left, reset));
    }
}

/// The time in which units are restored at a rate, in seconds, rounded up.
pub(super) fn seconds_to_restore(units: u32, rate: Rate) -> u32 {
    units.div_ceil(rate.per_second.get())
}

/// `RateLimit-Policy` of a rate.
pub(super) fn policy_header(scope: LimitScope, rate: Rate) -> HeaderValue {
    let burst = rate.burst.get();
    structured_item(scope.as_str(), &[("q", burst.into()), ("w", seconds_to_restore(burst, rate).into())])
}

/// The policies of the default rates, which most callers have.
#[derive(Debug)]
pub(super) struct DefaultPolicies(
    /// By [`LimitScope`].
    [Option<RatePolicy>; LimitScope::ALL.len()],
);

impl DefaultPolicies {
    pub(super) fn new(default_rate: impl Fn(LimitScope) -> Option<Rate>) -> Self {
        Self(LimitScope::ALL.map(|scope| {
            default_rate(scope).map(|rate| RatePolicy::new(scope, rate, static_policy_header(scope, rate)))
        }))
    }

    /// That of a rate, if it is the default of its scope.
    pub(super) fn get(&self, scope: LimitScope, rate: Rate) -> Option<RatePolicy> {
        self.0.get(scope as usize)?.as_ref().filter(|policy| policy.rate == rate).cloned()
    }
}

/// As [`policy_header`], leaked, once for each scope, so that answers do not contend for a count of references.
fn static_policy_header(scope: LimitScope, rate: Rate) -> HeaderValue {
    let policy = policy_header(scope, rate);
    match policy.to_str().map(str::to_owned) {
        Ok(text) => HeaderValue::from_static(text.leak()),
        Err(_) => policy,
    }
}

/// `RateLimit` of a rate with these units left, all restored after `reset` seconds.
pub(super) fn rate_limit_header(name: &str, left: u32, reset: u64) -> HeaderValue {
    structured_item(name, &[("r", left.into()), ("t", reset)])
}

/// An item of a structured field (RFC 9651): `"name";parameter=number;...`. Written without `format!`, since every answer carries one.
pub(super) fn structured_item(name: &str, parameters: &[(&str, u64)]) -> HeaderValue {
    let mut text = [0; MAX_ITEM];
    let mut rest = text.as_mut_slice();
    let mut put = |piece: &str| rest.write_all(piece.as_bytes());
    let mut put_all = || {
        put("\"")?;
        put(name)?;
        put("\"")?;
        parameters.iter().try_for_each(|(name, number)| {
            put(";")?;
            put(name)?;
            put("=")?;
            put(itoa::Buffer::new().format(*number))
        })
    };
    let written = put_all().map(|()| MAX_ITEM - rest.len());
    let text = written.ok().and_then(|length| text.get(..length));
    text.and_then(|text| HeaderValue::from_bytes(text).ok()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
