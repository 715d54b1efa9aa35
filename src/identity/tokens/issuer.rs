//! The public keys of one issuer (JWKS), fetched by a task periodically and when a token names an unknown key, so that
//! key rotation needs no restart. While they cannot be fetched, the last ones remain valid for a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::TokenError;
use super::fetch::Source;
use super::jwk::{KeyDigest, KeySet, PublicKey};
use crate::model::algorithm::Algorithm;
use crate::model::backoff::Backoff;
use crate::model::system::System;

/// The longest wait of a request for the keys of an issuer.
const KEYS_TIMEOUT: Duration = Duration::from_secs(6);

/// The delay after a failed fetch.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// Requests waiting for the keys of one issuer; further ones are refused as unavailable.
const MAX_WAITING: usize = 128;

/// The intervals of fetches.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchIntervals {
    /// The interval between periodic fetches.
    pub(super) refresh: Duration,
    /// How long keys remain valid while they cannot be fetched.
    pub(super) stale: Duration,
    /// The minimum interval between fetches for unknown keys.
    pub(super) unknown_key: Duration,
}

/// An issuer and its cached keys.
#[derive(Debug)]
pub(super) struct Issuer {
    source: Source,
    intervals: FetchIntervals,
    system: System,
    known: watch::Sender<Known>,
    wanted: Notify,
    waiting: Semaphore,
}

#[derive(Debug, Default)]
struct Known {
    /// The keys, and when they were fetched.
    keys: Option<(Arc<KeySet>, Instant)>,
    /// The numbers of fetches that began and that ended, successful or not.
    begun: u64,
    ended: u64,
    /// Whether another fetch is requested, and when one was last requested.
    requested: bool,
    requested_at: Option<Instant>,
}

impl Issuer {
    pub(super) fn new(source: Source, intervals: FetchIntervals, system: System) -> Self {
        Self {
            source,
            intervals,
            system,
            known: watch::Sender::new(Known::default()),
            wanted: Notify::new(),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    pub(super) fn url(&self) -> &str {
        self.source.issuer()
    }

    /// The public key of a token. An unknown key causes a fetch, unless keys were fetched just now: forged key ids
    /// cause at most one fetch per `tokens.unknown_key_seconds`.
    pub(super) async fn key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<PublicKey>, TokenError> {
        let find = || self.keys().and_then(|keys| keys.find(id, algorithm));
        if let Some(key) = find() {
            return Ok(key);
        }
        if let Some(fetch) = self.request_fetch() {
            // A slow issuer must not block further requests.
            let _permit = self.waiting.try_acquire().map_err(|_| TokenError::KeysUnknown)?;
            let mut known = self.known.subscribe();
            let waiting = known.wait_for(|known| known.ended >= fetch);
            // A fetch that takes too long counts as failed.
            tokio::time::timeout(KEYS_TIMEOUT, waiting).await.ok();
        }
        let unknown = if self.keys().is_some() { TokenError::Key } else { TokenError::KeysUnknown };
        find().ok_or(unknown)
    }

    /// Whether the issuer still publishes this key, as far as is known.
    pub(super) fn has(&self, key: KeyDigest) -> bool {
        self.keys().is_some_and(|keys| keys.has(key))
    }

    /// The cached keys, unless they are too old.
    fn keys(&self) -> Option<Arc<KeySet>> {
        let known = self.known.borrow();
        let (keys, fetched) = known.keys.as_ref()?;
        (fetched.elapsed() < self.intervals.stale).then(|| Arc::clone(keys))
    }

    /// Requests a fetch, if one is permitted; returns the number of the fetch to wait for, requested or in progress.
    fn request_fetch(&self) -> Option<u64> {
        let mut coming = None;
        self.known.send_if_modified(|known| {
            let permitted = known.requested_at.is_none_or(|at| at.elapsed() >= self.intervals.unknown_key);
            let first = known.keys.is_none() && known.begun > known.ended;
            if permitted && !first {
                (known.requested, known.requested_at) = (true, Some(Instant::now()));
                self.wanted.notify_one();
            }
            coming = if known.requested {
                Some(known.begun + 1)
            } else {
                (known.begun > known.ended).then_some(known.begun)
            };
            false
        });
        coming
    }

    /// Fetches the keys periodically and on request, until `stop`.
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
            None => self.intervals.refresh,
            Some(earlier) => RETRY.jittered(earlier, self.system.random.as_ref()).min(self.intervals.refresh),
        }
    }

    /// Fetches the keys once; the cached keys remain if that fails.
    async fn fetch(&self) -> bool {
        self.known.send_modify(|known| {
            known.begun += 1;
            known.requested = false;
        });
        let fetched = self.source.fetch().await;
        let succeeded = fetched.is_ok();
        match &fetched {
            Ok(keys) => {
                tracing::debug!(issuer = self.url(), keys = keys.len(), "issuer keys fetched");
            }
            Err(error) => {
                tracing::warn!(issuer = self.url(), %error, "issuer keys not fetched; retried later");
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
