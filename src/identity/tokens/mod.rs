//! Access tokens (JWT) of configured issuers: signatures, claims, and the issuers' public keys. Uses no database.

mod claims;
mod error;
mod fetch;
mod issuer;
mod jwk;
mod jws;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use time::OffsetDateTime;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::config::{self, PublicUrl, TokenIssuer};
use crate::model::allocated::behind_arc;
use crate::model::system::System;

use claims::ClaimRules;
pub use claims::{Audience, TokenGrant};
pub use error::TokenError;
pub use fetch::FetchError;
use fetch::Source;
use issuer::{FetchIntervals, Issuer};
use jwk::KeyDigest;
use jws::Jws;

/// The accepted issuers, which can be replaced.
#[derive(Debug)]
pub struct Tokens {
    accepted: ArcSwap<Vec<Arc<AcceptedIssuer>>>,
    intervals: FetchIntervals,
    leeway: Duration,
    public_url: PublicUrl,
    system: System,
}

/// An issuer with its keys, and the rules for the claims of its tokens.
#[derive(Debug)]
struct AcceptedIssuer {
    entry: TokenIssuer,
    keys: Arc<Issuer>,
    rules: ClaimRules,
    /// Fetches the keys until the last entry that uses them is dropped.
    fetching: Arc<DropGuard>,
}

/// Issuers that are prepared to replace the accepted ones.
#[derive(Debug)]
pub struct PreparedIssuers {
    accepted: Vec<Arc<AcceptedIssuer>>,
    unfetched: Vec<(Arc<Issuer>, CancellationToken)>,
}

/// A token whose signature was verified, and the key that verified it.
#[derive(Debug)]
pub struct VerifiedToken {
    /// What it grants.
    pub grant: TokenGrant,
    issuer: Weak<AcceptedIssuer>,
    key: KeyDigest,
}

impl VerifiedToken {
    /// The memory that it takes behind an `Arc`.
    pub(super) fn memory(&self) -> usize {
        behind_arc(size_of::<Self>()) + self.grant.heap()
    }
}

impl Tokens {
    /// Without an issuer.
    pub fn new(settings: &config::Tokens, public_url: &PublicUrl, system: System) -> Self {
        Self {
            accepted: ArcSwap::default(),
            intervals: FetchIntervals {
                refresh: settings.refresh,
                stale: settings.stale,
                unknown_key: settings.unknown_key,
            },
            leeway: settings.leeway,
            public_url: public_url.clone(),
            system,
        }
    }

    /// Prepares to accept the issuers of these entries and no others. An unchanged entry remains as it is, and a
    /// changed one keeps the keys of its issuer.
    ///
    /// # Errors
    /// If the machine's certificates cannot be loaded.
    pub fn prepare(&self, entries: &[TokenIssuer]) -> Result<PreparedIssuers, FetchError> {
        let known = self.accepted.load();
        let mut prepared = PreparedIssuers { accepted: Vec::new(), unfetched: Vec::new() };
        let mut client = None;
        for entry in entries {
            if let Some(same) = known.iter().find(|one| one.entry == *entry) {
                prepared.accepted.push(Arc::clone(same));
                continue;
            }
            let place = |entry: &TokenIssuer| (entry.issuer.clone(), entry.jwks_url.clone());
            let same_keys = known.iter().find(|one| place(&one.entry) == place(entry));
            let (keys, fetching) = if let Some(known) = same_keys {
                (Arc::clone(&known.keys), Arc::clone(&known.fetching))
            } else {
                let client = match &client {
                    Some(client) => client,
                    None => client.insert(fetch::client()?),
                };
                let (issuer, jwks_url) = place(entry);
                let source = Source::new(client.clone(), issuer, jwks_url);
                let keys = Arc::new(Issuer::new(source, self.intervals, self.system.clone()));
                let stop = CancellationToken::new();
                prepared.unfetched.push((Arc::clone(&keys), stop.clone()));
                (keys, Arc::new(stop.drop_guard()))
            };
            let rules = ClaimRules::new(entry, self.leeway, &self.public_url);
            prepared.accepted.push(Arc::new(AcceptedIssuer { entry: entry.clone(), keys, rules, fetching }));
        }
        Ok(prepared)
    }

    /// Accepts the prepared issuers, whose keys are kept up to date until `stop`. Tokens of other issuers, and of
    /// changed entries until they are verified again, are no longer [valid](Self::is_valid).
    pub fn replace(&self, prepared: PreparedIssuers, tasks: &TaskTracker, stop: &CancellationToken) {
        for (issuer, removed) in prepared.unfetched {
            let stop = stop.clone();
            tasks.spawn(async move { removed.run_until_cancelled(issuer.keep_fresh(stop)).await });
        }
        self.accepted.store(Arc::new(prepared.accepted));
    }

    /// Verifies a token: form, issuer, algorithm, times, audience, signature. What needs no key of the issuer is
    /// checked first, so that it causes no fetch.
    ///
    /// # Errors
    /// Why the token is refused.
    pub async fn verify(&self, token: &str, now: OffsetDateTime) -> Result<VerifiedToken, TokenError> {
        let jws = Jws::parse(token)?;
        let issuer = claims::issuer_of(&jws.claims)?;
        let found = self.accepted.load().iter().find(|one| one.keys.url() == issuer).cloned();
        let accepted = found.ok_or(TokenError::Issuer)?;
        let algorithm = jws.algorithm(&accepted.entry.algorithms)?;
        let grant = accepted.rules.read(&jws.claims, now)?;
        let key = accepted.keys.key(jws.key_id(), algorithm).await?;
        if !key.verifies(algorithm, jws.signed, &jws.signature) {
            return Err(TokenError::Signature);
        }
        Ok(VerifiedToken { grant, issuer: Arc::downgrade(&accepted), key: key.digest() })
    }

    /// Whether a verified token is still valid: it has not expired, its issuer's entry is accepted, and the issuer
    /// still publishes the key.
    pub fn is_valid(&self, token: &VerifiedToken, now: OffsetDateTime) -> bool {
        let accepted = self.accepted.load();
        let issuer = accepted.iter().find(|one| Arc::as_ptr(one) == token.issuer.as_ptr());
        token.grant.ends_at > now && issuer.is_some_and(|issuer| issuer.keys.has(token.key))
    }
}
