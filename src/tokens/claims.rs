//! Claims: which are required, and what they grant.

use serde_json::Value;
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::TokenError;
use crate::config::{self, PublicUrl};
use crate::model::caller::KeyScope;
use crate::model::ids::Slug;

/// Most agents that one token lists.
pub(super) const MOST_AGENTS: usize = 100;
/// Most bytes of a subject (`OpenID` Connect Core 1.0, section 2).
const MOST_SUBJECT: usize = 255;

/// What a token is made for (RFC 8707).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    /// The MCP endpoint of this agent.
    Endpoint(&'a str),
    /// The gateway itself: its admin surface.
    Gateway,
}

/// What a token's claims say that matters here.
#[derive(Debug)]
pub struct TokenGrant {
    /// Stands for the issuer's subject.
    pub subject: Uuid,
    /// From when on it is refused: its `exp`, and the leeway.
    pub ends_at: OffsetDateTime,
    /// When it was issued, with the leeway in its favour.
    pub issued_at: Option<OffsetDateTime>,
    /// The tenant; `None` where no tenant has such a name, or the claim is not there.
    pub tenant: Option<Slug>,
    /// The agents that it reaches; `None`: all of its tenant.
    pub agents: Option<Vec<Slug>>,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// The agents for whose endpoints it was made.
    endpoints: Vec<Slug>,
    /// Whether it was made for the gateway.
    gateway: bool,
}

impl TokenGrant {
    /// Whether it was made for this.
    pub fn is_for(&self, audience: Audience<'_>) -> bool {
        match audience {
            Audience::Endpoint(agent) => self.endpoints.iter().any(|own| own.as_str() == agent),
            Audience::Gateway => self.gateway,
        }
    }
}

/// How claims are read.
#[derive(Debug)]
pub(super) struct ClaimRules {
    public_url: PublicUrl,
    leeway: Duration,
    tenant: Option<Slug>,
    tenant_claim: String,
    agents_claim: Option<String>,
    scopes_claim: String,
}

impl ClaimRules {
    pub(super) fn new(settings: &config::Tokens, public_url: &PublicUrl) -> Self {
        Self {
            public_url: public_url.clone(),
            leeway: Duration::try_from(settings.leeway).unwrap_or(Duration::ZERO),
            tenant: settings.tenant.clone(),
            tenant_claim: settings.tenant_claim.clone(),
            agents_claim: settings.agents_claim.clone(),
            scopes_claim: settings.scopes_claim.clone(),
        }
    }

    /// Reads the claims of a token that is valid now.
    pub(super) fn read(&self, claims: &Value, now: OffsetDateTime) -> Result<TokenGrant, TokenError> {
        let issuer = issuer_of(claims)?;
        let subject = claims["sub"].as_str().filter(|sub| (1..=MOST_SUBJECT).contains(&sub.len()));
        let subject = subject.ok_or(TokenError::Claim("sub"))?;
        let (ends_at, issued_at) = self.times(claims, now)?;
        let (endpoints, gateway) = self.audiences(&claims["aud"])?;
        let agents = self.agents_claim.as_ref().map(|name| agents(claim(claims, name))).transpose()?;
        Ok(TokenGrant {
            subject: stand_in(issuer, subject),
            ends_at,
            issued_at,
            tenant: self.tenant.clone().or_else(|| slug(claim(claims, &self.tenant_claim))),
            agents,
            scopes: scopes(claim(claims, &self.scopes_claim)),
            endpoints,
            gateway,
        })
    }

    fn times(
        &self,
        claims: &Value,
        now: OffsetDateTime,
    ) -> Result<(OffsetDateTime, Option<OffsetDateTime>), TokenError> {
        let end = moment(claims, "exp")?.ok_or(TokenError::Claim("exp"))?;
        let end = end.checked_add(self.leeway).ok_or(TokenError::Claim("exp"))?;
        if end <= now {
            return Err(TokenError::Expired);
        }
        let latest = now + self.leeway;
        let issued = moment(claims, "iat")?;
        if moment(claims, "nbf")?.is_some_and(|from| from > latest) || issued.is_some_and(|at| at > latest) {
            return Err(TokenError::Early);
        }
        Ok((end, issued.and_then(|at| at.checked_add(self.leeway))))
    }

    /// What of the audience is here: endpoints by their canonical URLs, and the gateway by its own.
    fn audiences(&self, aud: &Value) -> Result<(Vec<Slug>, bool), TokenError> {
        let urls = strings(aud).ok_or(TokenError::Claim("aud"))?;
        let gateway = urls.contains(&self.public_url.as_str());
        let endpoint = |url: &str| {
            let path = url.strip_prefix(self.public_url.as_str())?;
            Slug::parse(path.strip_prefix('/')?.strip_suffix("/mcp")?).ok()
        };
        let endpoints: Vec<_> = urls.into_iter().filter_map(endpoint).collect();
        if gateway || !endpoints.is_empty() { Ok((endpoints, gateway)) } else { Err(TokenError::Audience) }
    }
}

/// Who says that he issued the token.
pub(super) fn issuer_of(claims: &Value) -> Result<&str, TokenError> {
    claims["iss"].as_str().ok_or(TokenError::Claim("iss"))
}

/// What stands for a subject of an issuer wherever keys are identified: a UUID of version 8.
fn stand_in(issuer: &str, subject: &str) -> Uuid {
    let mut digest = Sha256::new_with_prefix(issuer);
    digest.update([0]);
    digest.update(subject);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A claim by its name, or one within another by a JSON pointer (RFC 6901).
fn claim<'a>(claims: &'a Value, name: &str) -> &'a Value {
    let found = if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) };
    found.unwrap_or(&Value::Null)
}

/// A text, or an array of nothing else.
fn strings(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Words: an array of them, or one text with spaces between (RFC 8693, section 4.2).
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split(' ').filter(|word| !word.is_empty()).collect(),
        other => strings(other).unwrap_or_default(),
    }
}

fn slug(value: &Value) -> Option<Slug> {
    Slug::parse(value.as_str()?).ok()
}

/// What is no slug names no agent.
fn agents(value: &Value) -> Result<Vec<Slug>, TokenError> {
    let words = words(value);
    if words.len() > MOST_AGENTS {
        return Err(TokenError::Many);
    }
    Ok(words.into_iter().filter_map(|word| Slug::parse(word).ok()).collect())
}

fn scopes(value: &Value) -> Vec<KeyScope> {
    let mut scopes: Vec<_> = words(value).into_iter().filter_map(KeyScope::parse).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}

/// Seconds since 1970, whole or not (RFC 7519, section 2).
fn moment(claims: &Value, name: &'static str) -> Result<Option<OffsetDateTime>, TokenError> {
    let wrong = TokenError::Claim(name);
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().and_then(Duration::checked_seconds_f64).ok_or(wrong)?;
    OffsetDateTime::UNIX_EPOCH.checked_add(seconds).map(Some).ok_or(wrong)
}
