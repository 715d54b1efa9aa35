//! Sends what other replicas are to hear, every few milliseconds at the most, on a connection of its own.
//!
//! Inside the writing transaction NOTIFY would take a lock of the whole database at every commit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::model::scope::{Revision, Scope};
use crate::model::sources::FailPoint;
use crate::store::wakes::{ReplicaId, Wake, WakeSender};

/// Scopes that wait to be told; a wake past it is dropped, and the sweeps of the others find the change.
const MOST_PENDING: usize = 10_000;

/// What was not sent yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    some: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The newest revision of each scope.
    revisions: HashMap<Scope, Revision>,
    /// Questions asked by this replica so far, and whether the last is still to be sent.
    asked: u64,
    asks: bool,
    /// The newest question of each replica before which this one has heard everything.
    answers: HashMap<ReplicaId, u64>,
}

impl Pending {
    pub(super) fn add(&self, revisions: &[(Scope, Revision)]) {
        let mut state = self.state.lock();
        for (scope, revision) in revisions {
            if state.revisions.len() < MOST_PENDING || state.revisions.contains_key(scope) {
                state.raise(*scope, *revision);
            }
        }
        self.some.notify_one();
    }

    /// Asks everybody to have heard of a revision; answers the number of the question. There are no more of them than
    /// agents and sessions with streams.
    pub(super) fn ask(&self, scope: Scope, revision: Revision) -> u64 {
        let mut state = self.state.lock();
        state.raise(scope, revision);
        state.asked += 1;
        state.asks = true;
        self.some.notify_one();
        state.asked
    }

    /// Answers a question.
    pub(super) fn answer(&self, of: ReplicaId, question: u64) {
        let mut state = self.state.lock();
        let newest = state.answers.entry(of).or_default();
        *newest = (*newest).max(question);
        self.some.notify_one();
    }

    /// Drops what was to be told: its revisions are of a timeline that ended.
    pub(super) fn drop_revisions(&self) {
        self.state.lock().revisions.clear();
    }

    /// Has a heartbeat sent now.
    pub(super) fn beat(&self) {
        self.some.notify_one();
    }

    fn take(&self) -> State {
        let mut state = self.state.lock();
        let asked = state.asked;
        std::mem::replace(&mut *state, State { asked, ..State::default() })
    }
}

impl State {
    fn raise(&mut self, scope: Scope, revision: Revision) {
        let newest = self.revisions.entry(scope).or_default();
        *newest = (*newest).max(revision);
    }
}

impl Feed {
    pub(super) async fn notify(self: Arc<Self>, stop: CancellationToken) {
        let mut sender = None;
        let mut beats = tokio::time::interval(self.options.probe);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = Instant::now();
        let mut timeline = self.timeline();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // After a quiet moment at once: an event crosses three of these before it is told.
                () = self.pending.some.notified() => sleep_until(sent + self.options.notify).await,
                _ = beats.tick() => {}
            }
            sent = Instant::now();
            if std::mem::replace(&mut timeline, self.timeline()) != timeline {
                sender = None;
            }
            let messages = self.messages();
            sender = self.send(sender, &messages).await;
        }
    }

    /// What is to be sent now: a question after what it asks about, and a heartbeat with everything.
    fn messages(&self) -> Vec<Wake> {
        let State { mut revisions, asked, asks, answers } = self.pending.take();
        let all = revisions.len();
        revisions.retain(|_, _| !self.sources.fails(FailPoint::Notify));
        let mut messages: Vec<_> =
            revisions.iter().map(|(scope, revision)| Wake::Raised(*scope, *revision)).collect();
        let me = self.members.me;
        // What is lost is lost with the question that was sent along.
        if asks && messages.len() == all {
            messages.push(Wake::Ask(me, asked));
        }
        messages.extend(answers.into_iter().map(|(of, question)| Wake::Heard(me, of, question)));
        messages.push(Wake::Alive(me, self.proof.number(Instant::now())));
        messages
    }

    /// Sends on the connection there is, or a new one; answers the connection if it is still good.
    async fn send(&self, sender: Option<WakeSender>, messages: &[Wake]) -> Option<WakeSender> {
        let sending = async {
            let mut sender = match sender {
                Some(sender) => sender,
                None => self.store.wake_sender().await?,
            };
            sender.send(messages).await?;
            Ok::<_, crate::store::StoreError>(sender)
        };
        match timeout(self.options.patience, sending).await {
            Ok(Ok(sender)) => Some(sender),
            Ok(Err(error)) => {
                let lost = messages.len();
                tracing::debug!(%error, lost, "wakes were not sent; sweeps will find the changes");
                None
            }
            Err(_) => None,
        }
    }
}
