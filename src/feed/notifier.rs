//! Sends this replica's messages by `NOTIFY`, batched to one statement every few milliseconds, on a dedicated
//! connection, and reads on it what the other replicas have acknowledged.
//!
//! `NOTIFY` inside the writing transaction would take a lock on the whole database at every commit.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::pending::UnsentMessages;
use super::service::Feed;
use crate::model::backoff::Backoff;
use crate::model::system::FailPoint;
use crate::store::StoreError;
use crate::store::notify::{FeedMessage, NotifySender};

/// The maximum number of other replicas whose acknowledgements are expected within a round trip or two.
const FEW_REPLICAS: usize = 4;
/// The number of reads of their acknowledgements without a wait: timers are too coarse for a shorter one.
const READS_AT_ONCE: u32 = 3;
/// Wait before acknowledgements are read otherwise; doubled each time until all are there, up to [`MAX_WAIT`]. The first
/// wait for many replicas is most of the time that their acknowledgements took the last time, if that is longer: a read of
/// what many connections show is expensive.
const FIRST_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_millis(16);
/// Wait after a read that failed: the next one opens a connection.
const FAILURE_WAIT: Duration = Duration::from_millis(50);

/// When the notifier acts next.
struct Schedule {
    sent: Instant,
    send: Option<Instant>,
    read: Option<Instant>,
    /// Number of reads since a request of this replica was received.
    reads: u32,
    /// When it was received.
    received: Instant,
    /// How long acknowledgements took the last time that they took at most [`MAX_WAIT`].
    usual: Duration,
}

impl Feed {
    pub(super) async fn notify(self: Arc<Self>, stop: CancellationToken) {
        let mut sender = None;
        let mut timeline = self.timeline();
        let mut schedule = Schedule::starting_at(Instant::now());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // Without delay after an idle interval: an event takes two of these messages before it is
                // sent.
                () = self.pending.changed.notified() => {
                    let earliest = Instant::now().max(schedule.sent + self.options.notify);
                    schedule.send.get_or_insert(earliest);
                    continue;
                }
                () = self.replicas.collect.notified() => {
                    schedule.read_for_request(self.replicas.others());
                    continue;
                }
                () = schedule.due() => {}
            }
            if std::mem::replace(&mut timeline, self.timeline()) != timeline {
                sender = None;
            }
            let now = Instant::now();
            if schedule.send.is_some_and(|at| at <= now) {
                (schedule.send, schedule.sent) = (None, now);
                let messages = self.messages();
                if !messages.is_empty() {
                    sender = self.send(sender, &messages).await;
                }
            }
            if schedule.read.is_some_and(|at| at <= now) {
                schedule.read = None;
                sender = self.read_acks(sender, &mut schedule).await;
            }
        }
    }

    /// The messages to send now: revisions after the spans of their writes, and before the acknowledgement requests that
    /// refer to them.
    fn messages(&self) -> Vec<FeedMessage> {
        let UnsentMessages { mut revisions, spans, followed, request, acknowledged } = self.pending.take();
        let all = revisions.len();
        revisions.retain(|_, _| !self.system.fails(FailPoint::Notify));
        let mut messages: Vec<_> = followed.into_iter().map(FeedMessage::Followed).collect();
        // Tests that lose a revision lose the request that accompanies it as well.
        let request = request.filter(|_| revisions.len() == all);
        let spans = spans.into_iter().filter(|written| revisions.contains_key(&written.scope));
        messages.extend(spans.map(FeedMessage::Written));
        messages.extend(revisions.into_iter().map(|(scope, revision)| FeedMessage::Raised(scope, revision)));
        messages.extend(request.map(FeedMessage::AckRequest));
        messages.extend(acknowledged.map(FeedMessage::Acknowledged));
        messages
    }

    /// Reads what the other replicas have acknowledged, as long as a request of this one waits for it.
    async fn read_acks(&self, sender: Option<NotifySender>, schedule: &mut Schedule) -> Option<NotifySender> {
        let longest = self.longest_wait_for_acks();
        let Some(received) = self.replicas.collecting(longest, Instant::now()) else { return sender };
        let began = Instant::now();
        let reading = self.on_sender(sender, async |sender| sender.listeners().await);
        let Some((sender, shown)) = reading.await else {
            schedule.read_after_failure();
            return None;
        };
        let (acknowledged, gone) = self.replicas.evaluate(&shown, received, Instant::now());
        // Before anything that may fail: it is evaluated only once.
        if let Some(request) = acknowledged {
            self.pending.acknowledge(request);
            // Without delay: streams of other replicas wait for it.
            schedule.send = Some(Instant::now());
        }
        let mut sender = Some(sender);
        if !gone.is_empty() {
            let forgetting = self.on_sender(sender, async |sender| sender.forget(&gone).await);
            sender = forgetting.await.map(|(sender, ())| sender);
        }
        if self.replicas.collecting(longest, Instant::now()).is_some() {
            schedule.reads += 1;
            schedule.read_later(self.replicas.others());
        } else {
            schedule.all_acknowledged(began);
        }
        sender
    }

    /// Sends messages on the given connection or a new one; returns the connection if it is still usable.
    async fn send(&self, sender: Option<NotifySender>, messages: &[FeedMessage]) -> Option<NotifySender> {
        let idle = sender.is_some();
        let send = async |sender: &mut NotifySender| sender.send(messages).await;
        let first = self.on_sender(sender, send).await;
        if first.is_none() && idle {
            // The connection may have been closed while it was idle. What is sent twice is harmless.
            return Some(self.on_sender(None, send).await?.0);
        }
        Some(first?.0)
    }

    /// Does something on the given connection or a new one; returns the connection and the result if it succeeded.
    async fn on_sender<T>(
        &self,
        sender: Option<NotifySender>,
        act: impl AsyncFnOnce(&mut NotifySender) -> Result<T, StoreError>,
    ) -> Option<(NotifySender, T)> {
        let acting = async {
            let mut sender = match sender {
                Some(sender) => sender,
                None => self.store.notify_sender().await?,
            };
            let done = act(&mut sender).await?;
            Ok::<_, StoreError>((sender, done))
        };
        match timeout(self.options.timeout, acting).await {
            Ok(Ok(done)) => Some(done),
            Ok(Err(error)) => {
                tracing::debug!(%error, "notify failed; sweeps will find the changes");
                None
            }
            Err(_) => None,
        }
    }
}

impl Schedule {
    fn starting_at(now: Instant) -> Self {
        Self { sent: now, send: None, read: None, reads: 0, received: now, usual: Duration::ZERO }
    }

    /// Schedules the first read for a request that was received, of what this many other replicas have acknowledged. While a
    /// replica does not answer an earlier one, there are no reads without a wait for each further request.
    fn read_for_request(&mut self, replicas: usize) {
        if let Some(scheduled) = self.read {
            self.reads = self.reads.min(reads_at_once(replicas));
            self.read_later(replicas);
            self.read = self.read.min(Some(scheduled));
        } else {
            (self.reads, self.received) = (0, Instant::now());
            self.read_later(replicas);
        }
    }

    /// Schedules the next read of what this many other replicas have acknowledged.
    fn read_later(&mut self, replicas: usize) {
        self.read = Some(Instant::now() + wait_before_read(self.reads, replicas, self.usual));
    }

    /// Schedules another read after one that failed: events would wait until the request is given up.
    fn read_after_failure(&mut self) {
        self.reads += 1;
        self.read = Some(Instant::now() + FAILURE_WAIT);
    }

    /// Records that a read that began at `read` found that all replicas have acknowledged what was requested.
    fn all_acknowledged(&mut self, read: Instant) {
        let took = read.saturating_duration_since(self.received);
        if took <= MAX_WAIT {
            // After a single read they may have taken much less than the wait for it: the next waits are shorter, until one needs
            // a second read.
            self.usual = if self.reads == 0 { took * 3 / 4 } else { took };
        }
    }

    /// Waits until the notifier has to act.
    async fn due(&self) {
        match self.send.into_iter().chain(self.read).min() {
            // A timer is up to a millisecond late.
            Some(at) if at <= Instant::now() => {}
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// The number of reads without a wait of what this many other replicas have acknowledged.
fn reads_at_once(replicas: usize) -> u32 {
    if replicas <= FEW_REPLICAS { READS_AT_ONCE } else { 0 }
}

/// The wait before a read of what this many other replicas have acknowledged, after so many reads, where acknowledgements
/// usually take so long.
fn wait_before_read(reads: u32, replicas: usize, usual: Duration) -> Duration {
    let at_once = reads_at_once(replicas);
    if at_once == 0 && reads == 0 {
        return (usual * 3 / 4).clamp(FIRST_WAIT, MAX_WAIT);
    }
    let waits = if at_once == 0 { reads.checked_sub(1) } else { reads.checked_sub(at_once) };
    waits.map_or(Duration::ZERO, |waits| Backoff::new(FIRST_WAIT, MAX_WAIT).delay(waits))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{
        FAILURE_WAIT, FEW_REPLICAS, FIRST_WAIT, MAX_WAIT, READS_AT_ONCE, Schedule, wait_before_read,
    };

    #[test]
    fn few_replicas_are_read_at_once_and_then_with_backoff() {
        let waits = |replicas, usual| {
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 40]
                .map(|reads| wait_before_read(reads, replicas, Duration::from_millis(usual)).as_millis())
        };
        for replicas in [0, 1, FEW_REPLICAS] {
            assert_eq!(waits(replicas, 8), [0, 0, 0, 1, 2, 4, 8, 16, 16, 16]);
        }
        assert_eq!(waits(FEW_REPLICAS + 1, 0), [1, 1, 2, 4, 8, 16, 16, 16, 16, 16]);
        assert_eq!(waits(FEW_REPLICAS + 1, 8), [6, 1, 2, 4, 8, 16, 16, 16, 16, 16]);
    }

    #[test]
    fn many_replicas_are_first_read_after_most_of_the_time_that_they_took() {
        let now = Instant::now();
        let mut schedule = Schedule::starting_at(now);
        let took = |schedule: &mut Schedule, millis| {
            (schedule.received, schedule.reads) = (now, 1);
            schedule.all_acknowledged(now + Duration::from_millis(millis));
        };
        took(&mut schedule, 8);
        let before = Instant::now();
        schedule.read_for_request(FEW_REPLICAS + 1);
        let first = schedule.read.unwrap();
        assert!(first >= before + Duration::from_millis(6));
        schedule.read_for_request(FEW_REPLICAS + 1);
        assert_eq!(schedule.read, Some(first), "another request delays no read");
        (schedule.received, schedule.reads) = (now, 0);
        schedule.all_acknowledged(now + Duration::from_millis(8));
        assert_eq!(schedule.usual, Duration::from_millis(6), "the first read was late");
        took(&mut schedule, 8);
        took(&mut schedule, 500);
        assert_eq!(
            schedule.usual,
            Duration::from_millis(8),
            "a silent replica says nothing about the others"
        );
    }

    #[test]
    fn failed_read_is_repeated() {
        let mut schedule = Schedule::starting_at(Instant::now());
        let before = Instant::now();
        schedule.read_after_failure();
        assert!(schedule.read.unwrap() >= before + FAILURE_WAIT);
        assert_eq!(schedule.reads, 1, "no further ones without a wait");
    }

    #[test]
    fn requests_beside_a_silent_replica_are_not_read_at_once() {
        let mut schedule = Schedule::starting_at(Instant::now());
        schedule.reads = 9;
        schedule.read_for_request(1);
        assert_eq!(schedule.reads, 0, "nothing was awaited");
        let before = Instant::now();
        (schedule.reads, schedule.read) = (9, Some(before + MAX_WAIT));
        schedule.read_for_request(1);
        assert_eq!(schedule.reads, READS_AT_ONCE);
        assert!(schedule.read.unwrap() >= before + FIRST_WAIT);
        schedule.read_for_request(FEW_REPLICAS + 1);
        assert_eq!(schedule.reads, 0, "many replicas are not read at once in any case");
    }
}
