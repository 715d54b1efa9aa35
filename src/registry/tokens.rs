//! Access tokens: from what a verified one says to what it grants, in uids.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Registry;
use super::access::Grant;
use super::directory::Edition;
use crate::model::caller::{Credential, CredentialKind, Reach};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, PrincipalId, Slug, TenantId};
use crate::model::limits::KeyLimits;
use crate::model::networks::Networks;
use crate::tokens::{Audience, TokenError, VerifiedToken};

/// Whoever is refused because an issuer does not answer may try again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// What a token is remembered by.
pub(super) type TokenHash = [u8; 32];

/// What a token grants, as of an edition of the directory.
#[derive(Debug, Clone)]
pub(super) struct KnownToken {
    grant: Arc<Grant>,
    edition: Option<Edition>,
}

impl Registry {
    /// What an access token grants now at an agent's endpoint, or at the gateway itself.
    ///
    /// Only what was verified is looked up and remembered: a bad token reaches no database. What it says is looked up
    /// anew when the directory has changed.
    pub(super) async fn token_grant(&self, token: &str, agent: Option<&str>) -> Result<Arc<Grant>, Fault> {
        let hash: TokenHash = Sha256::digest(token).into();
        let remembered = self.known_tokens.get(&hash);
        let still = remembered.filter(|known| known.grant.token().is_some_and(|token| self.stands(token)));
        let verified = match still.as_ref().and_then(|known| known.grant.token()) {
            Some(verified) => Arc::clone(verified),
            None => Arc::new(self.verify(token).await?),
        };
        if !verified.grant.is_for(agent.map_or(Audience::Gateway, Audience::Endpoint)) {
            tracing::debug!(error = %TokenError::Audience, "an access token is refused");
            return Err(Fault::Unauthenticated);
        }
        self.confirm().await?;
        let edition = self.edition().await?;
        if let Some(known) = still.filter(|known| edition.is_some() && known.edition == edition) {
            return Ok(known.grant);
        }
        let grant = self.resolve(verified).await?;
        self.known_tokens.insert(hash, KnownToken { grant: Arc::clone(&grant), edition });
        Ok(grant)
    }

    /// Whether a token was found to be good before.
    pub(super) fn remembers_token(&self, token: &str) -> bool {
        self.known_tokens.contains_key(&TokenHash::from(Sha256::digest(token)))
    }

    /// Whether a token still holds that did.
    pub(super) fn stands(&self, token: &VerifiedToken) -> bool {
        self.tokens.stands(token, self.now())
    }

    async fn verify(&self, token: &str) -> Result<VerifiedToken, Fault> {
        self.tokens.verify(token, self.now()).await.map_err(|error| {
            tracing::debug!(%error, "an access token is refused");
            match error {
                TokenError::KeysUnknown => Fault::Unavailable { retry_after: RETRY },
                _ => Fault::Unauthenticated,
            }
        })
    }

    /// Puts uids in the place of slugs. A token from before its tenant was made, or without a time of issue
    /// where the slug was used before, is not the tenant's.
    async fn resolve(&self, token: Arc<VerifiedToken>) -> Result<Arc<Grant>, Fault> {
        let said = &token.grant;
        let named = match &said.tenant {
            Some(slug) => self.tenant_address(slug).await?,
            None => None,
        };
        let named = named.filter(|tenant| tenant.may_be_meant_by(said.issued_at));
        let (tenant, reach) = match (named, &said.agents) {
            (None, _) => (TenantId(Uuid::nil()), Reach::Agents(Vec::new())),
            (Some(tenant), None) => (tenant.uid, Reach::Tenant),
            (Some(tenant), Some(slugs)) => {
                (tenant.uid, Reach::Agents(self.agents_of(tenant.uid, slugs).await?))
            }
        };
        let credential = Credential {
            kind: CredentialKind::Token,
            key: KeyId(said.subject),
            principal: PrincipalId(said.subject),
            tenant,
            reach,
            networks: Networks::default(),
            scopes: said.scopes.clone(),
            expires_at: Some(said.ends_at),
            limits: KeyLimits::default(),
        };
        Ok(Grant::of_token(credential, token))
    }

    /// Those agents that are the tenant's.
    async fn agents_of(&self, tenant: TenantId, slugs: &[Slug]) -> Result<Vec<AgentId>, Fault> {
        let mut agents = Vec::with_capacity(slugs.len());
        for slug in slugs {
            let found = self.address(slug.as_str()).await?;
            agents.extend(found.filter(|(owner, _)| *owner == tenant).map(|(_, agent)| agent));
        }
        Ok(agents)
    }
}
