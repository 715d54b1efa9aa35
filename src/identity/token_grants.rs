//! Access tokens: resolves the claims of a verified token to its grant.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Identity;
use super::grant::Grant;
use super::memory::{KnownToken, TokenHash};
use super::tokens::{Audience, TokenError, VerifiedToken};
use crate::model::caller::{Credential, CredentialKind, Payer, Reach};
use crate::model::client_address::Networks;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, PrincipalId, Slug, TenantId};
use crate::model::limits::KeyLimits;

impl Identity {
    /// What an access token grants now at an agent's endpoint, or at the gateway itself.
    ///
    /// Only a verified token is resolved and cached: an invalid one causes no query. Its slugs are resolved again when
    /// the directory has changed.
    pub(super) async fn token_grant(
        &self,
        token: &str,
        agent: Option<&str>,
        payer: Payer,
    ) -> Result<Arc<Grant>, Fault> {
        let hash: TokenHash = Sha256::digest(token).into();
        let cached = self.memory.tokens.get(&hash);
        let still = cached.filter(|known| known.grant.token().is_some_and(|token| self.is_valid(token)));
        let verified = match still.as_ref().and_then(|known| known.grant.token()) {
            Some(verified) => Arc::clone(verified),
            None => Arc::new(self.verify(token).await?),
        };
        if !verified.grant.is_for(agent.map_or(Audience::Gateway, Audience::Endpoint)) {
            tracing::debug!(error = %TokenError::Audience, "access token refused");
            return Err(Fault::Unauthenticated);
        }
        self.loader.confirm().await?;
        let version = self.directory_version(payer).await?;
        if let Some(known) = still.filter(|known| version.is_some() && known.version == version) {
            return Ok(known.grant);
        }
        let grant = self.resolve(payer, verified).await?;
        let memory = grant.memory() + grant.token().map_or(0, |token| token.memory());
        let known = KnownToken { grant: Arc::clone(&grant), version };
        self.memory.tokens.insert(hash, known, Some(grant.credential.tenant), memory);
        Ok(grant)
    }

    /// Whether a token was verified before and is cached.
    pub(super) fn has_cached_token(&self, token: &str) -> bool {
        self.memory.tokens.contains(&TokenHash::from(Sha256::digest(token)))
    }

    /// Whether a verified token is still valid.
    pub(super) fn is_valid(&self, token: &VerifiedToken) -> bool {
        self.tokens.is_valid(token, self.now())
    }

    async fn verify(&self, token: &str) -> Result<VerifiedToken, Fault> {
        self.tokens.verify(token, self.now()).await.map_err(|error| {
            tracing::debug!(%error, "access token refused");
            match error {
                TokenError::KeysUnknown => Fault::BUSY,
                _ => Fault::Unauthenticated,
            }
        })
    }

    /// Resolves the slugs of the claims. A token issued before its tenant was created, or without a time of issue if the
    /// slug had another tenant before, grants nothing of the tenant.
    async fn resolve(&self, payer: Payer, token: Arc<VerifiedToken>) -> Result<Arc<Grant>, Fault> {
        let claims = &token.grant;
        let named = match &claims.tenant {
            Some(slug) => self.tenant_address(payer, slug).await?,
            None => None,
        };
        let named = named.filter(|tenant| tenant.accepts_token_issued_at(claims.issued_at));
        let (tenant, reach) = match (named, &claims.agents) {
            (None, _) => (TenantId(Uuid::nil()), Reach::Agents(Vec::new())),
            (Some(tenant), None) => (tenant.uid, Reach::Tenant),
            (Some(tenant), Some(slugs)) => {
                (tenant.uid, Reach::Agents(self.agents_of(payer, tenant.uid, slugs).await?))
            }
        };
        let credential = Credential {
            kind: CredentialKind::Token,
            key: KeyId(claims.subject),
            principal: PrincipalId(claims.subject),
            tenant,
            reach,
            networks: Networks::default(),
            scopes: claims.scopes.clone(),
            labels: claims.labels.clone(),
            expires_at: Some(claims.ends_at),
            limits: KeyLimits::default(),
        };
        Ok(Grant::of_token(credential, token))
    }

    /// The agents of the tenant among these slugs.
    async fn agents_of(&self, payer: Payer, tenant: TenantId, slugs: &[Slug]) -> Result<Vec<AgentId>, Fault> {
        let mut agents = Vec::with_capacity(slugs.len());
        for slug in slugs {
            let found = self.agent_address(payer, slug.as_str()).await?;
            agents.extend(found.filter(|(owner, _)| *owner == tenant).map(|(_, agent)| agent));
        }
        Ok(agents)
    }
}
