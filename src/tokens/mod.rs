//! Access tokens of configured issuers: signatures, claims, and the public keys they are checked with. No database.

mod claims;
mod fetch;
mod issuer;
mod jwk;
mod jws;

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{self, PublicUrl, TokenIssuer};
use crate::model::algorithm::Algorithm;

use claims::ClaimRules;
pub use claims::{Audience, TokenGrant};
pub use fetch::FetchError;
use fetch::Source;
use issuer::{Issuer, Pace};
use jwk::Fingerprint;
use jws::Jws;

/// Why a token is not believed. All but the last are answered alike; the log tells them apart, at `debug`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It has not the form of a signed token (RFC 7515, section 7.1).
    #[error("the token is not three parts of base64url, the first two of them JSON objects")]
    Form,
    /// Its header asks for something that is not understood.
    #[error("the token's header has a type or a critical extension that is not understood")]
    Header,
    /// Its algorithm is none of those that are allowed.
    #[error("the token's algorithm is not among the algorithms of its issuer's entry")]
    Algorithm,
    /// Its issuer is none of those that are configured.
    #[error("the token's iss is not among tokens.issuers")]
    Issuer,
    /// A registered claim is missing or not of its type.
    #[error("the token has no {0}, or one that is not of its type")]
    Claim(&'static str),
    /// It lists more than is taken.
    #[error("the token lists more agents than {}", claims::MOST_AGENTS)]
    Many,
    /// It was made for somebody else.
    #[error("the token's aud names nothing here")]
    Audience,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet")]
    Early,
    /// The issuer has no such key.
    #[error("the issuer has no key of the token's kid that fits its algorithm")]
    Key,
    /// The signature is another's.
    #[error("the token's signature does not verify")]
    Signature,
    /// The issuer's keys are not known, so nothing can be said.
    #[error("the issuer's keys cannot be fetched")]
    KeysUnknown,
}

/// The issuers that are believed.
#[derive(Debug)]
pub struct Tokens {
    issuers: Vec<AcceptedIssuer>,
}

/// An issuer with its keys, and how its tokens are read.
#[derive(Debug)]
struct AcceptedIssuer {
    keys: Arc<Issuer>,
    algorithms: Vec<Algorithm>,
    rules: ClaimRules,
}

/// A token whose signature verified, and with which key.
#[derive(Debug)]
pub struct VerifiedToken {
    /// What it grants.
    pub grant: TokenGrant,
    issuer: usize,
    key: Fingerprint,
}

impl Tokens {
    /// The issuers of the settings, whose keys are fetched once they are [started](Self::start); `None` where there are
    /// none.
    ///
    /// # Errors
    /// When the machine's certificates cannot be had.
    pub fn new(settings: &config::Tokens, public_url: &PublicUrl) -> Result<Option<Self>, FetchError> {
        if settings.issuers.is_empty() {
            return Ok(None);
        }
        let client = fetch::client()?;
        let pace =
            Pace { refresh: settings.refresh, stale: settings.stale, unknown_key: settings.unknown_key };
        let accepted = |entry: &TokenIssuer| {
            let source = Source::new(client.clone(), entry.issuer.clone(), entry.jwks_url.clone());
            AcceptedIssuer {
                keys: Arc::new(Issuer::new(source, pace)),
                algorithms: entry.algorithms.clone(),
                rules: ClaimRules::new(entry, settings.leeway, public_url),
            }
        };
        Ok(Some(Self { issuers: settings.issuers.iter().map(accepted).collect() }))
    }

    /// Keeps the keys of all issuers fresh, until `stop`.
    pub fn start(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        for issuer in &self.issuers {
            let (issuer, stop) = (Arc::clone(&issuer.keys), stop.clone());
            tasks.spawn(async move { issuer.keep_fresh(stop).await });
        }
    }

    /// Checks a token: form, issuer, algorithm, times, audience, signature. What can be told without the issuer's keys
    /// comes first, so that it causes no fetch.
    ///
    /// # Errors
    /// Why it is not believed.
    pub async fn verify(&self, token: &str, now: OffsetDateTime) -> Result<VerifiedToken, TokenError> {
        let jws = Jws::parse(token)?;
        let issuer = claims::issuer_of(&jws.claims)?;
        let found = self.issuers.iter().enumerate().find(|(_, one)| one.keys.url() == issuer);
        let (issuer, accepted) = found.ok_or(TokenError::Issuer)?;
        let algorithm = jws.algorithm(&accepted.algorithms)?;
        let grant = accepted.rules.read(&jws.claims, now)?;
        let key = accepted.keys.key(jws.key_id(), algorithm).await?;
        if !key.verifies(algorithm, jws.signed, &jws.signature) {
            return Err(TokenError::Signature);
        }
        Ok(VerifiedToken { grant, issuer, key: key.fingerprint() })
    }

    /// Whether a token that was believed still is: it has not expired, and its issuer still has the key.
    pub fn stands(&self, token: &VerifiedToken, now: OffsetDateTime) -> bool {
        let issuer = self.issuers.get(token.issuer);
        token.grant.ends_at > now && issuer.is_some_and(|issuer| issuer.keys.has(token.key))
    }
}

/// Longest that a request waits for an issuer's keys.
const PATIENCE: Duration = Duration::from_secs(6);
