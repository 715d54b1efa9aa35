//! The state of watched content, and the decision when it is polled next.

use std::time::Duration;

use content_source::{FetchError, Kind, Path};
use tokio::time::Instant;

use super::poll::{Known, PollResult, Verdict};
use super::schedule::ContentState;
use crate::model::backoff::Backoff;
use crate::model::fault::Fault;
use crate::store::watched::FoundDigest;

/// How often content is polled whose changes are reported.
const SCAN_INTERVAL: Duration = Duration::from_mins(1);
/// How often files are polled whose changes are not reported: what is unchanged is not read.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time between two revisions of the same content.
pub(super) const MIN_REVISION_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time until content is polled again that failed, unless it is polled less often.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
/// After what time content is polled again that the source says has changed, while the rate of polls is used up.
const URGENT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Watched content.
#[derive(Debug)]
pub(super) struct WatchedContent {
    pub(super) known: Known,
    /// No poll before: a revision was just made.
    pub(super) not_before: Instant,
    pub(super) path: Option<Path>,
    /// How often content of its connection is polled; `None` until it was fetched.
    every: Option<Duration>,
    failures: u32,
    /// How many times in a row a poll was refused.
    refusals: u32,
    /// Whether a poll is in progress.
    pub(super) is_polled: bool,
    /// Whether it may have changed since the last poll began.
    pub(super) is_stale: bool,
    /// Whether the source says that it changed.
    pub(super) is_urgent: bool,
}

/// When content is polled next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextPoll {
    /// After this time, shortened by jitter.
    After(Duration),
    /// When the next round of polls of its connection begins, of which there is one in this time: polls of a round share
    /// what they ask.
    WithRound(Duration),
}

impl WatchedContent {
    pub(super) fn new(recorded: Option<FoundDigest>, now: Instant) -> Self {
        Self {
            known: Known { recorded, contents: None },
            not_before: now,
            path: None,
            every: None,
            failures: 0,
            refusals: 0,
            is_polled: false,
            is_stale: false,
            is_urgent: false,
        }
    }

    /// What is known of it.
    pub(super) fn content_state(&self) -> ContentState {
        match (self.known.recorded, self.failures) {
            (Some(_), _) => ContentState::Known,
            (None, 0) => ContentState::New,
            (None, _) => ContentState::Failing,
        }
    }

    /// Takes note that a poll ended, and decides when the next one is. `is_reported` is whether the source reports
    /// changes.
    pub(super) fn polled(
        &mut self,
        result: &Result<Option<PollResult>, Fault>,
        is_reported: bool,
        now: Instant,
    ) -> NextPoll {
        self.is_polled = false;
        match result {
            Ok(Some(found)) => {
                (self.failures, self.refusals, self.is_urgent) = (0, 0, false);
                let every = found.every;
                self.every = Some(every);
                if found.verdict == Verdict::Changed {
                    self.not_before = now + MIN_REVISION_INTERVAL;
                }
                match (found.verdict, found.source.0) {
                    (Verdict::Open, _) => NextPoll::After(MIN_REVISION_INTERVAL),
                    (_, Kind::Git) => NextPoll::WithRound(every),
                    (_, Kind::File) if is_reported => NextPoll::After(SCAN_INTERVAL),
                    (_, Kind::File) => NextPoll::After(FILE_POLL_INTERVAL),
                    _ if is_reported => NextPoll::After(every.max(SCAN_INTERVAL)),
                    _ => NextPoll::After(every),
                }
            }
            Ok(None) => NextPoll::After(self.every.unwrap_or_default().max(MIN_REVISION_INTERVAL)),
            // The rate of polls is used up, or the circuit is open: that is no failure. Later each time: what is refused takes
            // time, too, if there is much of it. What failed before is polled no sooner for it.
            Err(Fault::SourceFailed(FetchError::Busy)) => {
                let first = if self.is_urgent { URGENT_RETRY_DELAY } else { MIN_REVISION_INTERVAL };
                let longest =
                    self.every.unwrap_or(MAX_RETRY_DELAY).clamp(MIN_REVISION_INTERVAL, MAX_RETRY_DELAY);
                self.refusals = self.refusals.saturating_add(1);
                let refused = Backoff::new(first, longest).delay(self.refusals - 1);
                let failed = (self.failures > 0).then(|| backed_off(self.every, self.failures));
                NextPoll::After(failed.map_or(refused, |failed| failed.max(refused)))
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                NextPoll::After(backed_off(self.every, self.failures))
            }
        }
    }
}

/// The time until the next poll after so many failures in a row.
fn backed_off(every: Option<Duration>, failures: u32) -> Duration {
    let every = every.unwrap_or_default();
    let backoff = Backoff::new(every.max(MIN_REVISION_INTERVAL), every.max(MAX_RETRY_DELAY));
    backoff.delay(failures.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use content_source::{FetchError, Kind};
    use tokio::time::Instant;

    use super::NextPoll::{After, WithRound};
    use super::{
        Known, MIN_REVISION_INTERVAL, PollResult, URGENT_RETRY_DELAY, Verdict, WatchedContent, backed_off,
    };
    use crate::model::fault::Fault;
    use crate::model::scope::Revision;

    #[test]
    fn failures_in_a_row_are_retried_ever_later() {
        let after = |every, failures| backed_off(Some(Duration::from_secs(every)), failures).as_secs();
        assert_eq!([1, 2, 3, 7, 40].map(|failures| after(1, failures)), [1, 2, 4, 60, 60]);
        assert_eq!((after(0, 1), after(30, 1), after(30, 3), after(3_600, 5)), (1, 30, 60, 3_600));
    }

    #[test]
    fn next_poll_depends_on_the_source_and_on_reported_changes() {
        let every = Duration::from_secs(10);
        let next = |kind, verdict, is_reported| {
            let (source, now) = ((kind, Revision(1)), Instant::now());
            let known = Known::default();
            let found = PollResult { known, verdict, source, path: None, is_of_mount: false, every };
            WatchedContent::new(None, now).polled(&Ok(Some(found)), is_reported, now)
        };
        let same = |kind| [true, false].map(|is_reported| next(kind, Verdict::Same, is_reported));
        let minute = Duration::from_mins(1);
        assert_eq!(same(Kind::File), [After(minute), After(Duration::from_millis(500))]);
        assert_eq!(same(Kind::Sql), [After(minute), After(every)]);
        assert_eq!(same(Kind::Git), [WithRound(every), WithRound(every)]);
        assert_eq!(next(Kind::Git, Verdict::Open, false), After(MIN_REVISION_INTERVAL));
    }

    #[test]
    fn refused_poll_is_no_failure_and_repeated_soon_if_urgent() {
        let now = Instant::now();
        let mut content = WatchedContent::new(None, now);
        let mut polled = |is_urgent, error| {
            content.is_urgent = is_urgent;
            content.polled(&Err(Fault::SourceFailed(error)), false, now)
        };
        let urgent = [(); 3].map(|()| polled(true, FetchError::Busy));
        assert_eq!(urgent, [1, 2, 4].map(|times| After(URGENT_RETRY_DELAY * times)));
        // Also what was never fetched is polled ever later.
        assert_eq!(polled(false, FetchError::Busy), After(Duration::from_secs(8)));
        let failed = [(); 3].map(|()| polled(false, FetchError::Unreachable));
        assert_eq!(failed, [1, 2, 4].map(|seconds| After(Duration::from_secs(seconds))));
        content.refusals = 0;
        let refused = content.polled(&Err(Fault::SourceFailed(FetchError::Busy)), false, now);
        assert_eq!(refused, After(Duration::from_secs(4)), "no sooner than if it had not been refused");
    }
}
