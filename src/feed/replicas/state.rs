//! The state behind [`Replicas`](super::Replicas): received requests, followed scopes and what connections show.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::scope::{Revision, Scope};
use crate::store::notify::{AckRequestId, ListenerId, ListenerState};

/// Number of received requests that are remembered. Acknowledgements of older ones count as none.
const REMEMBERED_REQUESTS: usize = 4_096;
/// Maximum number of requests of this replica that are not acknowledged.
pub(super) const MAX_OPEN: usize = REMEMBERED_REQUESTS;
/// Maximum number of followed scopes; writes to further ones do not request acknowledgements by themselves.
const MAX_FOLLOWED: usize = 10_000;
/// How long a scope counts as followed after a replica has announced it.
const FOLLOWED_FOR: Duration = Duration::from_mins(10);
/// Time per replica over which requests for the same revision are spread, so that one of them serves all.
const SPREAD: Duration = Duration::from_millis(1);
const MAX_SPREAD: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct State {
    /// The next unique number. Starts at a random one, so that no two replicas use the same.
    next: u64,
    /// This replica's share of a spread, of 255.
    share: u8,
    /// The connection on which this replica listens, and since when it receives every message.
    pub(super) listening: Option<(ListenerId, Instant)>,
    /// Number of requests received.
    pub(super) received: u64,
    /// The number of the newest request that all replicas have acknowledged.
    pub(super) acknowledged: u64,
    /// The requests received last, and the number of each.
    recent: VecDeque<AckRequestId>,
    numbers: HashMap<AckRequestId, u64>,
    pub(super) open: OpenRequests,
    pub(super) followed: HashMap<Scope, Followed>,
    listeners: HashMap<ListenerId, Seen>,
    /// Number of requests received before the listeners were last read.
    read_after: u64,
}

/// Requests of this replica that are not acknowledged, the oldest first, each with the time of its creation.
///
/// Those that are too old are forgotten when acknowledgements are read, which is not done while this replica receives no
/// messages. So at most [`MAX_OPEN`] are kept: the oldest is given up for a new one. The acknowledgement of any later request
/// serves what waits for it.
#[derive(Debug, Default)]
pub(super) struct OpenRequests(VecDeque<(AckRequestId, Instant)>);

/// A scope with streams on some replica.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) until: Instant,
    /// The newest revision received, and the number of requests received before.
    raised: Option<(Revision, u64)>,
    /// The newest revision for which this replica sent a request.
    requested: Option<(Revision, AckRequestId)>,
}

/// What a connection shows.
#[derive(Debug)]
struct Seen {
    state: Option<ListenerState>,
    /// When it was first seen like this.
    since: Instant,
    /// Number of requests received before it was registered: its replica sweeps the changes before it trusts it.
    registered_after: u64,
}

impl OpenRequests {
    /// Adds a request, unless it is among these already.
    pub(super) fn insert(&mut self, request: AckRequestId, now: Instant) {
        if self.contains(request) {
            return;
        }
        if self.0.len() == MAX_OPEN {
            self.0.pop_front();
        }
        self.0.push_back((request, now));
    }

    pub(super) fn contains(&self, request: AckRequestId) -> bool {
        // The newest ones are looked for mostly.
        self.0.iter().rev().any(|(open, _)| *open == request)
    }
}

impl Followed {
    /// Records a revision that was received after so many requests.
    pub(super) fn raise(&mut self, revision: Revision, received: u64) {
        if self.raised.is_none_or(|(newest, _)| newest < revision) {
            self.raised = Some((revision, received));
        }
    }

    /// Records a request of this replica for a revision.
    pub(super) fn request(&mut self, revision: Revision, request: AckRequestId) {
        if self.requested.is_none_or(|(newest, _)| newest < revision) {
            self.requested = Some((revision, request));
        }
    }

    /// The number of requests received before the revision; any later request serves it.
    pub(super) fn requests_before(&self, revision: Revision) -> Option<u64> {
        self.raised.filter(|(newest, _)| *newest >= revision).map(|(_, before)| before)
    }

    /// This replica's request for the revision.
    pub(super) fn requested(&self, revision: Revision) -> Option<AckRequestId> {
        self.requested.filter(|(newest, _)| *newest >= revision).map(|(_, request)| request)
    }
}

impl State {
    pub(super) fn new(first: u64) -> Self {
        Self {
            next: first,
            share: first.to_le_bytes()[0],
            listening: None,
            received: 0,
            acknowledged: 0,
            recent: VecDeque::new(),
            numbers: HashMap::new(),
            open: OpenRequests::default(),
            followed: HashMap::new(),
            listeners: HashMap::new(),
            read_after: 0,
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// The number of a received request.
    pub(super) fn number(&self, request: AckRequestId) -> Option<u64> {
        self.numbers.get(&request).copied()
    }

    pub(super) fn is_acknowledged(&self, request: AckRequestId) -> bool {
        self.number(request).is_some_and(|number| number <= self.acknowledged)
    }

    pub(super) fn receive(&mut self, request: AckRequestId) {
        if self.recent.len() == REMEMBERED_REQUESTS
            && let Some(oldest) = self.recent.pop_front()
        {
            self.numbers.remove(&oldest);
        }
        self.received += 1;
        self.recent.push_back(request);
        self.numbers.insert(request, self.received);
    }

    pub(super) fn forget_revisions(&mut self) {
        for followed in self.followed.values_mut() {
            (followed.raised, followed.requested) = (None, None);
        }
    }

    pub(super) fn follow(&mut self, scope: Scope, now: Instant) {
        let until = now + FOLLOWED_FOR;
        if self.followed.len() >= MAX_FOLLOWED && !self.followed.contains_key(&scope) {
            self.followed.retain(|_, followed| followed.until > now);
            if self.followed.len() >= MAX_FOLLOWED {
                return;
            }
        }
        let new = Followed { until, raised: None, requested: None };
        self.followed.entry(scope).or_insert(new).until = until;
    }

    /// How long this replica waits for the request of another before it sends its own.
    pub(super) fn spread(&self) -> Duration {
        let replicas = u32::try_from(self.listeners.len()).unwrap_or(u32::MAX);
        SPREAD.saturating_mul(replicas).min(MAX_SPREAD) * u32::from(self.share) / u32::from(u8::MAX)
    }

    /// The number of other replicas that were registered when the listeners were last read.
    pub(super) fn others(&self) -> usize {
        let (me, _) = self.listening.unzip();
        self.listeners.keys().filter(|listener| Some(**listener) != me).count()
    }

    /// Forgets requests of this replica that are acknowledged, or older than `longest`. Returns whether acknowledgements
    /// of others can be read.
    pub(super) fn is_collecting(&mut self, longest: Duration, now: Instant) -> bool {
        let (numbers, acknowledged) = (&self.numbers, self.acknowledged);
        self.open.0.retain(|(request, created)| {
            let done = numbers.get(request).is_some_and(|number| *number <= acknowledged);
            !done && now.duration_since(*created) <= longest
        });
        self.open.0.iter().any(|(request, _)| numbers.contains_key(request))
    }

    /// Forgets the requests of this replica that are acknowledged, and returns the newest of them.
    pub(super) fn take_acknowledged(&mut self) -> Option<AckRequestId> {
        let open = std::mem::take(&mut self.open.0);
        let (done, open) = open.into_iter().partition(|(request, _)| self.is_acknowledged(*request));
        self.open.0 = open;
        let done: VecDeque<_> = done;
        done.into_iter().map(|(request, _)| request).max_by_key(|request| self.number(*request))
    }

    /// Records what the connections showed after so many requests were received. Returns those that have been closed for
    /// longer than the trust period.
    pub(super) fn see(
        &mut self,
        shown: &[(ListenerId, Option<ListenerState>)],
        received: u64,
        trust_period: Duration,
        now: Instant,
    ) -> Vec<ListenerId> {
        let mut before = std::mem::take(&mut self.listeners);
        let read_after = std::mem::replace(&mut self.read_after, received);
        let mut gone = Vec::new();
        for (id, state) in shown {
            let seen = match before.remove(id) {
                Some(seen) if seen.state == *state => seen,
                Some(seen) => Seen { state: *state, since: now, ..seen },
                None => Seen { state: *state, since: now, registered_after: read_after },
            };
            if seen.state.is_none() && now.duration_since(seen.since) > trust_period {
                gone.push(*id);
            }
            self.listeners.insert(*id, seen);
        }
        gone
    }

    /// The number of the newest request acknowledged by every replica that may answer from memory; `None` while this
    /// replica may not know all of them.
    pub(super) fn acknowledged_by_all(&self, trust_period: Duration, now: Instant) -> Option<u64> {
        let (me, since) = self.listening?;
        if now.duration_since(since) <= trust_period || !self.listeners.contains_key(&me) {
            return None;
        }
        // A replica does not trust a connection that has shown no other probe for longer than the trust period: the last one that
        // was answered had been sent before it was first seen here.
        let trusted =
            self.listeners.iter().filter(|(_, seen)| now.duration_since(seen.since) <= trust_period);
        let number = |id: ListenerId, seen: &Seen| {
            let shown = seen.state.and_then(|state| self.number(state.acknowledged?)).unwrap_or(0);
            // What this replica had received when it read what others show, whether it shows that yet or not.
            if id == me { shown.max(self.read_after) } else { shown }
        };
        trusted.map(|(id, seen)| number(*id, seen).max(seen.registered_after)).min()
    }
}
