//! The keys of one issuer: fetched by a task of its own, now and then and when a key is not known; believed for a while
//! when they cannot be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::TokenError;
use super::fetch::Source;
use super::jwk::{Fingerprint, KeySet, PublicKey};
use crate::model::algorithm::Algorithm;

/// The longest that a request waits for the keys of an issuer.
const KEYS_TIMEOUT: Duration = Duration::from_secs(6);

/// After the first fetch that failed; twice as long after each that follows.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// Requests that wait for the keys of one issuer; further ones are refused as unavailable.
const MOST_WAITING: usize = 128;

/// When keys are fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How often in any case.
    pub(super) refresh: Duration,
    /// How long they are believed that cannot be fetched anew.
    pub(super) stale: Duration,
    /// The least time between two fetches because of a key that is not known.
    pub(super) unknown_key: Duration,
}

/// An issuer and what is known of its keys.
#[derive(Debug)]
pub(super) struct Issuer {
    source: Source,
    pace: Pace,
    known: watch::Sender<Known>,
    wanted: Notify,
    waiting: Semaphore,
}

#[derive(Debug, Default)]
struct Known {
    /// The keys, and when they were fetched.
    keys: Option<(Arc<KeySet>, Instant)>,
    /// Fetches that began and that ended, well or not.
    begun: u64,
    ended: u64,
    /// Whether somebody has asked for one more, and when that was last so.
    asked: bool,
    asked_at: Option<Instant>,
}

impl Issuer {
    pub(super) fn new(source: Source, pace: Pace) -> Self {
        Self {
            source,
            pace,
            known: watch::Sender::new(Known::default()),
            wanted: Notify::new(),
            waiting: Semaphore::new(MOST_WAITING),
        }
    }

    pub(super) fn url(&self) -> &str {
        self.source.issuer()
    }

    /// The public key of a token. An unknown key is fetched from the issuer, unless the keys were fetched just now: made-up
    /// key ids cause a fetch every `tokens.unknown_key_seconds` at most.
    pub(super) async fn key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<PublicKey>, TokenError> {
        let find = || self.keys().and_then(|keys| keys.find(id, algorithm));
        if let Some(key) = find() {
            return Ok(key);
        }
        if let Some(fetch) = self.ask() {
            // An issuer that is slow to answer does not keep everybody else out.
            let _place = self.waiting.try_acquire().map_err(|_| TokenError::KeysUnknown)?;
            let mut known = self.known.subscribe();
            let waiting = known.wait_for(|known| known.ended >= fetch);
            // A fetch that takes too long is one that brought nothing.
            tokio::time::timeout(KEYS_TIMEOUT, waiting).await.ok();
        }
        let unknown = if self.keys().is_some() { TokenError::Key } else { TokenError::KeysUnknown };
        find().ok_or(unknown)
    }

    /// Whether it still has this key, as far as is known.
    pub(super) fn has(&self, key: Fingerprint) -> bool {
        self.keys().is_some_and(|keys| keys.has(key))
    }

    /// The keys, unless they are too old to be believed.
    fn keys(&self) -> Option<Arc<KeySet>> {
        let known = self.known.borrow();
        let (keys, fetched) = known.keys.as_ref()?;
        (fetched.elapsed() < self.pace.stale).then(|| Arc::clone(keys))
    }

    /// Asks for the keys to be fetched anew; answers with which fetch they come, if one may be asked for or is under way.
    fn ask(&self) -> Option<u64> {
        let mut coming = None;
        self.known.send_if_modified(|known| {
            let paced = known.asked_at.is_none_or(|at| at.elapsed() >= self.pace.unknown_key);
            let first = known.keys.is_none() && known.begun > known.ended;
            if paced && !first {
                (known.asked, known.asked_at) = (true, Some(Instant::now()));
                self.wanted.notify_one();
            }
            coming = if known.asked {
                Some(known.begun + 1)
            } else {
                (known.begun > known.ended).then_some(known.begun)
            };
            false
        });
        coming
    }

    /// Fetches the keys now and then and when asked, until `stop`.
    pub(super) async fn keep_fresh(&self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let fetched = tokio::select! {
                fetched = self.fetch() => fetched,
                () = stop.cancelled() => return,
            };
            failures = if fetched { 0 } else { failures + 1 };
            let pause = self.pause(failures);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wanted.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        match failures.checked_sub(1) {
            None => self.pace.refresh,
            Some(more) => {
                let retry = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(more));
                retry.min(LONGEST_RETRY).min(self.pace.refresh)
            }
        }
    }

    /// Fetches the keys once; those that are known stay where that fails.
    async fn fetch(&self) -> bool {
        self.known.send_modify(|known| {
            known.begun += 1;
            known.asked = false;
        });
        let fetched = self.source.fetch().await;
        let succeeded = fetched.is_ok();
        match &fetched {
            Ok(keys) => {
                tracing::debug!(issuer = self.url(), keys = keys.len(), "an issuer's keys were fetched");
            }
            Err(error) => {
                tracing::warn!(issuer = self.url(), %error, "an issuer's keys cannot be fetched");
            }
        }
        self.known.send_modify(|known| {
            known.ended = known.begun;
            if let Ok(keys) = fetched {
                known.keys = Some((Arc::new(keys), Instant::now()));
            }
        });
        succeeded
    }
}
