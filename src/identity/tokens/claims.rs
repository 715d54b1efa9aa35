//! Claims: which are required, and what they grant.

use serde_json::Value;
use sha2::{Digest, Sha256};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::error::{MAX_AGENTS, TokenError};
use crate::config::{PublicUrl, TokenIssuer};
use crate::model::allocated::{allocated, behind_arc};
use crate::model::caller::KeyScope;
use crate::model::ids::{Slug, uuid_of_digest};
use crate::model::label::{Label, Labels};

/// The maximum length of a subject in bytes (`OpenID` Connect Core 1.0, section 2).
const MAX_SUBJECT: usize = 255;

/// The audience of a token (RFC 8707).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience<'a> {
    /// The MCP endpoint of this agent.
    Endpoint(&'a str),
    /// The gateway itself: its administration API.
    Gateway,
}

/// The claims of a token, as far as they are relevant.
#[derive(Debug)]
pub struct TokenGrant {
    /// Identifies the subject of the issuer.
    pub subject: Uuid,
    /// When the token expires: its `exp`, plus the leeway.
    pub ends_at: OffsetDateTime,
    /// When it was issued, with the leeway in its favor.
    pub issued_at: Option<OffsetDateTime>,
    /// The tenant; `None` if the claim is missing or not a slug, or the issuer's entry does not allow the tenant.
    pub tenant: Option<Slug>,
    /// The agents that it reaches; `None` for all of its tenant.
    pub agents: Option<Vec<Slug>>,
    /// Its scopes.
    pub scopes: Vec<KeyScope>,
    /// Its labels.
    pub labels: Labels,
    audiences: Audiences,
}

/// The audiences of a token at this gateway.
#[derive(Debug)]
enum Audiences {
    /// All endpoints, and the administration API.
    All,
    /// Those that its `aud` names by URL.
    Named {
        /// The agents whose endpoints it names.
        endpoints: Vec<Slug>,
        /// Whether it names the gateway itself.
        gateway: bool,
    },
}

impl TokenGrant {
    /// The bytes of its heap memory.
    pub(super) fn heap(&self) -> usize {
        let endpoints = match &self.audiences {
            Audiences::All => &[][..],
            Audiences::Named { endpoints, .. } => endpoints,
        };
        let slugs = [self.agents.as_deref().unwrap_or_default(), endpoints];
        let text = |slug: &Slug| behind_arc(slug.as_str().len());
        let slugs = slugs
            .into_iter()
            .map(|slugs| allocated(size_of_val(slugs)) + slugs.iter().map(text).sum::<usize>());
        slugs.sum::<usize>() + allocated(size_of_val(self.scopes.as_slice())) + self.labels.heap()
    }

    /// Whether the token is valid for this audience.
    pub fn is_for(&self, audience: Audience<'_>) -> bool {
        let Audiences::Named { endpoints, gateway } = &self.audiences else { return true };
        match audience {
            Audience::Endpoint(agent) => endpoints.iter().any(|own| own.as_str() == agent),
            Audience::Gateway => *gateway,
        }
    }
}

/// The rules for the claims of one issuer's tokens.
#[derive(Debug)]
pub(super) struct ClaimRules {
    public_url: PublicUrl,
    leeway: Duration,
    issuer: TokenIssuer,
}

impl ClaimRules {
    pub(super) fn new(issuer: &TokenIssuer, leeway: std::time::Duration, public_url: &PublicUrl) -> Self {
        Self {
            public_url: public_url.clone(),
            leeway: Duration::try_from(leeway).unwrap_or(Duration::ZERO),
            issuer: issuer.clone(),
        }
    }

    /// Reads the claims of a token that is valid now.
    pub(super) fn read(&self, claims: &Value, now: OffsetDateTime) -> Result<TokenGrant, TokenError> {
        let issuer = issuer_of(claims)?;
        let subject = claims["sub"].as_str().filter(|sub| (1..=MAX_SUBJECT).contains(&sub.len()));
        let subject = subject.ok_or(TokenError::Claim("sub"))?;
        let (ends_at, issued_at) = self.times(claims, now)?;
        let audiences = self.audiences(&claims["aud"])?;
        let agents = self.issuer.agents_claim.as_ref().map(|name| agents(claim(claims, name))).transpose()?;
        Ok(TokenGrant {
            subject: stand_in(issuer, subject),
            ends_at,
            issued_at,
            tenant: self.tenant(claims),
            agents,
            scopes: scopes(claim(claims, &self.issuer.scopes_claim)),
            labels: self
                .issuer
                .labels_claim
                .as_ref()
                .map(|name| labels(claim(claims, name)))
                .unwrap_or_default(),
            audiences,
        })
    }

    /// The tenant that a token may act in: the one of its issuer's entry or of its claim, if the entry allows it.
    fn tenant(&self, claims: &Value) -> Option<Slug> {
        let fixed = self.issuer.tenant.clone();
        let tenant = fixed.or_else(|| slug(claim(claims, &self.issuer.tenant_claim)))?;
        if self.issuer.tenants.contains(&tenant) {
            return Some(tenant);
        }
        tracing::debug!(issuer = %self.issuer.issuer, %tenant, "access token names a tenant that its issuer may not");
        None
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

    /// The audiences at this gateway: endpoints by their canonical URLs, the gateway by its own, or all of them by the
    /// audience of the issuer's entry.
    fn audiences(&self, aud: &Value) -> Result<Audiences, TokenError> {
        let urls = strings(aud).ok_or(TokenError::Claim("aud"))?;
        if self.issuer.audience.as_deref().is_some_and(|audience| urls.contains(&audience)) {
            return Ok(Audiences::All);
        }
        let gateway = urls.contains(&self.public_url.as_str());
        let endpoint = |url: &str| {
            let path = url.strip_prefix(self.public_url.as_str())?;
            Slug::parse(path.strip_prefix('/')?.strip_suffix("/mcp")?).ok()
        };
        let endpoints: Vec<_> = urls.into_iter().filter_map(endpoint).collect();
        let named = gateway || !endpoints.is_empty();
        if named { Ok(Audiences::Named { endpoints, gateway }) } else { Err(TokenError::Audience) }
    }
}

/// The issuer that the token names, unverified.
pub(super) fn issuer_of(claims: &Value) -> Result<&str, TokenError> {
    claims["iss"].as_str().ok_or(TokenError::Claim("iss"))
}

/// The id of an issuer's subject wherever keys are identified: a UUID of version 8.
fn stand_in(issuer: &str, subject: &str) -> Uuid {
    let mut digest = Sha256::new_with_prefix(issuer);
    digest.update([0]);
    digest.update(subject);
    uuid_of_digest(&digest.finalize().into())
}

/// A claim by its name, or a nested one by a JSON pointer (RFC 6901).
fn claim<'a>(claims: &'a Value, name: &str) -> &'a Value {
    let found = if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) };
    found.unwrap_or(&Value::Null)
}

/// A string, or an array of strings.
fn strings(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Words: an array of strings, or one string separated by spaces (RFC 8693, section 4.2).
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => text.split(' ').filter(|word| !word.is_empty()).collect(),
        other => strings(other).unwrap_or_default(),
    }
}

fn slug(value: &Value) -> Option<Slug> {
    Slug::parse(value.as_str()?).ok()
}

/// Values that are not slugs name no agent.
fn agents(value: &Value) -> Result<Vec<Slug>, TokenError> {
    let words = words(value);
    if words.len() > MAX_AGENTS {
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

/// Values that are not labels are ignored. Any number, within the size of a token.
fn labels(value: &Value) -> Labels {
    let words = match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => words(other),
    };
    words.into_iter().filter_map(|word| Label::parse(word).ok()).collect()
}

/// Seconds since 1970, possibly fractional (RFC 7519, section 2).
fn moment(claims: &Value, name: &'static str) -> Result<Option<OffsetDateTime>, TokenError> {
    let wrong = TokenError::Claim(name);
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().and_then(Duration::checked_seconds_f64).ok_or(wrong)?;
    OffsetDateTime::UNIX_EPOCH.checked_add(seconds).map(Some).ok_or(wrong)
}
