//! The memory budget: one for the bytes of all caches, which is divided by use (cache eviction).
//!
//! Everything cached carries a [`Charge`]: its bytes count to the total, to its cache and to the tenant that it is cached
//! for, from before it is inserted until it is dropped. When the total exceeds the budget, entries are evicted: of a few
//! random ones, of caches in proportion to their bytes, the one that was used longest ago.
//!
//! **Tenants do not pay for each other.** Half of the budget is shared equally between the tenants that have anything in
//! memory, the other half goes by use: what a tenant used in the last [`PROTECTED`] is not evicted while the tenant holds
//! no more than its part of the first half. So at most half of what can be evicted is protected, and an attempt frees on
//! average at least half of an entry of average size.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use parking_lot::RwLock;

use super::resident_limit::{ReadResident, ResidentLimit, of_process};
use crate::model::ids::TenantId;

/// For how long an entry is protected after its use while its tenant holds no more than its part.
pub const PROTECTED: Duration = Duration::from_mins(5);

/// An entry of more than this part of the budget is served and not cached.
const MAX_OF_BUDGET: usize = 4;
/// What is never evicted should take no more than this part.
const MAX_PINNED: usize = 2;
/// Of this many entries the one that was used longest ago is evicted.
const SAMPLES: usize = 8;
/// Entries that one insertion looks at to make room: less than a few milliseconds.
const MAX_ATTEMPTS: usize = 8_192;
/// By how many milliseconds another thread may have read a later time of the clock.
const MAX_AHEAD: u32 = 60_000;
/// Tenants without anything in memory whose accounts are retained.
const SPARE_ACCOUNTS: usize = 1_024;

/// The budget of all caches.
pub struct MemoryBudget {
    limit: usize,
    resident: ResidentLimit,
    used: AtomicUsize,
    /// The part of `used` that cannot be evicted.
    pinned: AtomicUsize,
    /// Accounts that hold anything.
    holders: AtomicUsize,
    accounts: DashMap<Option<TenantId>, Weak<Account>>,
    caches: RwLock<Vec<Weak<dyn Evict>>>,
    clock: Clock,
    random: AtomicU64,
}

/// Milliseconds, as of the last insertion or [`MemoryBudget::tick`]. They wrap after seven weeks: ages are differences.
struct Clock {
    read: Box<dyn Fn() -> u32 + Send + Sync>,
    now: Arc<AtomicU32>,
}

/// The bytes that are cached for one tenant, or for none.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<MemoryBudget>,
    bytes: AtomicUsize,
    is_pinned: bool,
}

/// The counters of one cache.
#[derive(Debug)]
pub(super) struct CacheCounters {
    pub(super) name: &'static str,
    pub(super) entries: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    pub(super) evictions: AtomicU64,
}

/// The bytes of something cached, counted until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    cache: Arc<CacheCounters>,
    bytes: AtomicUsize,
}

/// The state of one cache, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Its name.
    pub name: &'static str,
    /// Its entries.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Look-ups that found an entry.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Entries that were evicted.
    pub evictions: u64,
}

/// A cache as the budget sees it.
pub(super) trait Evict: Send + Sync {
    fn bytes(&self) -> usize;

    /// A random entry that is not in use. All have the same chance, unless most entries were removed.
    fn sample(&self) -> Option<Candidate>;

    /// Drops an entry, unless it was used or replaced since it was sampled.
    fn evict(&self, candidate: &Candidate);

    fn stats(&self) -> CacheStats;
}

/// An entry that may be evicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) shard: usize,
    pub(super) bucket: usize,
    /// When it was used last.
    pub(super) used: u32,
    /// The bytes of its account.
    pub(super) held: usize,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Self::with(bytes, milliseconds(), Box::new(|| None))
    }

    /// As [`new`](Self::new); less may be cached while the process has more memory resident than the budget accounts for.
    pub fn of_process(bytes: u64) -> Arc<Self> {
        Self::with(bytes, milliseconds(), Box::new(of_process))
    }

    /// As [`new`](Self::new), with a clock that counts milliseconds.
    pub fn with_clock(bytes: u64, clock: impl Fn() -> u32 + Send + Sync + 'static) -> Arc<Self> {
        Self::with(bytes, clock, Box::new(|| None))
    }

    pub(super) fn with(
        bytes: u64,
        clock: impl Fn() -> u32 + Send + Sync + 'static,
        resident: ReadResident,
    ) -> Arc<Self> {
        let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
        Arc::new(Self {
            limit,
            resident: ResidentLimit::new(limit, resident),
            used: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            holders: AtomicUsize::new(0),
            accounts: DashMap::new(),
            caches: RwLock::new(Vec::new()),
            clock: Clock { now: Arc::new(AtomicU32::new(clock())), read: Box::new(clock) },
            random: AtomicU64::new(1),
        })
    }

    /// The bytes of the budget.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes of the budget that are withheld, since the process has too much memory resident.
    pub fn withheld(&self) -> usize {
        self.resident.withheld()
    }

    /// The bytes that may be in use.
    fn allowed(&self) -> usize {
        self.limit - self.resident.withheld().min(self.limit)
    }

    /// The most bytes of one entry.
    pub fn most_of_one(&self) -> usize {
        self.limit / MAX_OF_BUDGET
    }

    /// The state of each cache that evicts.
    pub fn stats(&self) -> Vec<CacheStats> {
        self.live().iter().map(|cache| cache.stats()).collect()
    }

    /// Advances the clock by which entries were used. To be called every second or so: an entry that is used while
    /// nothing is inserted counts as used at the last call.
    pub fn tick(&self) {
        self.clock.now.store((self.clock.read)(), Ordering::Relaxed);
    }

    /// A charge for something that is never evicted.
    pub fn pin(self: &Arc<Self>, name: &'static str) -> Charge {
        let account = Account { budget: Arc::clone(self), bytes: AtomicUsize::new(0), is_pinned: true };
        Charge::new(&Arc::new(account), &CacheCounters::new(name), 0)
    }

    fn now(&self) -> u32 {
        self.clock.now.load(Ordering::Relaxed)
    }

    /// The time at which an entry that is used now counts as used, in milliseconds: shared, and advanced by insertions and
    /// [`tick`](Self::tick).
    pub(super) fn time(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.clock.now)
    }

    pub(super) fn register(&self, cache: Weak<dyn Evict>) {
        self.caches.write().push(cache);
    }

    /// The account of a tenant, or of what is cached for none.
    pub(super) fn account(self: &Arc<Self>, tenant: Option<TenantId>) -> Arc<Account> {
        if self.accounts.len() > SPARE_ACCOUNTS + 2 * self.holders.load(Ordering::Relaxed) {
            self.accounts.retain(|_, account| account.strong_count() > 0);
        }
        let mut entry = self.accounts.entry(tenant).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let account =
                Arc::new(Account { budget: Arc::clone(self), bytes: AtomicUsize::new(0), is_pinned: false });
            *entry = Arc::downgrade(&account);
            account
        })
    }

    /// Evicts until the total is within the budget; false where that takes too many attempts, or nothing more can be
    /// evicted.
    pub(super) fn make_room(&self) -> bool {
        self.resident.update(self.used());
        let allowed = self.allowed();
        if self.used() <= allowed {
            return true;
        }
        self.tick();
        let caches = self.live();
        let mut attempts = MAX_ATTEMPTS;
        while self.used() > allowed {
            let Some((cache, candidate)) = self.oldest(&caches, &mut attempts) else { return false };
            cache.evict(&candidate);
        }
        true
    }

    fn live(&self) -> Vec<Arc<dyn Evict>> {
        self.caches.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// The one of a few random entries that was used longest ago, of those that are not protected.
    fn oldest<'c>(
        &self,
        caches: &'c [Arc<dyn Evict>],
        attempts: &mut usize,
    ) -> Option<(&'c Arc<dyn Evict>, Candidate)> {
        let bytes: usize = caches.iter().map(|cache| cache.bytes()).sum();
        let (now, part) = (self.now(), self.guaranteed());
        let mut oldest: Option<(u32, &Arc<dyn Evict>, Candidate)> = None;
        let mut found = 0;
        while found < SAMPLES && bytes > 0 && *attempts > 0 {
            *attempts -= 1;
            let Some(cache) = pick(caches, self.random() % bytes as u64) else { continue };
            let Some(candidate) = cache.sample() else { continue };
            let age = age(now, candidate.used);
            if candidate.held <= part && u128::from(age) <= PROTECTED.as_millis() {
                continue;
            }
            found += 1;
            if oldest.is_none_or(|(oldest, ..)| age > oldest) {
                oldest = Some((age, cache, candidate));
            }
        }
        oldest.map(|(_, cache, candidate)| (cache, candidate))
    }

    /// The bytes that a tenant may hold of what it uses, independently of other tenants.
    fn guaranteed(&self) -> usize {
        let shared = self.allowed().saturating_sub(self.pinned.load(Ordering::Relaxed));
        shared / 2 / self.holders.load(Ordering::Relaxed).max(1)
    }

    /// A random number, not for secrets: the next of `SplitMix64`.
    pub(super) fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.random.fetch_add(STEP, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("limit", &self.limit)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// The milliseconds since an entry was used; none where another thread used it after this one read the clock.
fn age(now: u32, used: u32) -> u32 {
    if used.wrapping_sub(now) <= MAX_AHEAD { 0 } else { now.wrapping_sub(used) }
}

/// A clock that counts milliseconds from now on.
fn milliseconds() -> impl Fn() -> u32 + Send + Sync {
    let start = Instant::now();
    move || u32::try_from(start.elapsed().as_millis() & u128::from(u32::MAX)).unwrap_or_default()
}

/// The cache that holds the `nth` of all bytes: a few large entries are found beside any number of small ones of another
/// cache.
fn pick(caches: &[Arc<dyn Evict>], mut nth: u64) -> Option<&Arc<dyn Evict>> {
    caches.iter().find(|cache| {
        let own = cache.bytes() as u64;
        let is_here = nth < own;
        nth = nth.saturating_sub(own);
        is_here
    })
}

impl Account {
    fn change(&self, from: usize, to: usize) {
        if to >= from { self.add(to - from) } else { self.subtract(from - to) }
    }

    fn add(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_pinned {
            self.budget.pinned.fetch_add(bytes, Ordering::Relaxed);
        } else if before == 0 {
            self.budget.holders.fetch_add(1, Ordering::Relaxed);
        }
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.budget.resident.insert(bytes);
    }

    fn subtract(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.is_pinned {
            self.budget.pinned.fetch_sub(bytes, Ordering::Relaxed);
        } else if before == bytes {
            self.budget.holders.fetch_sub(1, Ordering::Relaxed);
        }
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl CacheCounters {
    pub(super) fn new(name: &'static str) -> Arc<Self> {
        let (entries, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { name, entries, bytes, evictions: AtomicU64::new(0) })
    }
}

impl Charge {
    pub(super) fn new(account: &Arc<Account>, cache: &Arc<CacheCounters>, bytes: usize) -> Self {
        let charge =
            Self { account: Arc::clone(account), cache: Arc::clone(cache), bytes: AtomicUsize::new(0) };
        charge.set(bytes);
        charge
    }

    /// A charge of nothing yet, to the same tenant and of the same cache.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::new(&self.account, &self.cache, 0)
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The bytes that are charged to the same tenant.
    pub(super) fn held(&self) -> usize {
        self.account.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that may be charged at once: of one entry, or of what is never evicted.
    pub fn most(&self) -> usize {
        let Account { budget, is_pinned, .. } = &*self.account;
        if *is_pinned { budget.limit / MAX_PINNED } else { budget.most_of_one() }
    }

    /// Changes the bytes, and evicts others for them.
    pub fn resize(&self, bytes: usize) {
        self.set(bytes);
        self.make_room();
    }

    /// Evicts until the total is within the budget, as far as possible. Cells must not be locked: which of them may be
    /// evicted is asked of them.
    pub(super) fn make_room(&self) {
        self.account.budget.make_room();
    }

    /// Changes the bytes, where they are few enough for one entry and others can be evicted for them; otherwise to none, and
    /// returns false.
    pub fn try_resize(&self, bytes: usize) -> bool {
        self.set(bytes);
        let fits = bytes <= self.most() && self.account.budget.make_room();
        if !fits {
            self.set(0);
        }
        fits
    }

    /// Changes the bytes; nothing is evicted for them.
    pub(super) fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if self.account.is_pinned && (before..bytes).contains(&self.most()) {
            let Account { budget, .. } = &*self.account;
            tracing::warn!(
                cache = self.cache.name,
                bytes,
                budget = budget.limit,
                "half of cache.bytes is never evicted"
            );
        }
        if bytes >= before {
            self.cache.bytes.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.cache.bytes.fetch_sub(before - bytes, Ordering::Relaxed);
        }
        self.account.change(before, bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}
