//! The lookup of a key that is not in memory. One statement reads the key, the agent named by the request's
//! slug, the access settings of that agent, and the heads of the scopes concerned. It compares `coalesce(revoked_at, …)`, not
//! `revoked_at is null`: without statistics the partial index of the keys that are not revoked would be read from end to end (ADR 0022).

use std::sync::atomic::Ordering;

use sqlx::types::Json;

use super::agents::agent_access;
use super::keys::CredentialRow;
use super::{Store, StoreError};
use crate::model::agent::{AccessLimits, AgentAccess};
use crate::model::caller::Credential;
use crate::model::ids::{AgentId, TenantId};
use crate::model::key::KeyHash;
use crate::model::limits::{RateLimit, UseLimits};
use crate::model::scope::{Revision, Scope};

/// Result of a lookup, from one snapshot.
#[derive(Debug)]
pub struct KeyLookup {
    /// The credential of the key.
    pub credential: Credential,
    /// The revision of the key's tenant.
    pub tenant: Revision,
    /// The revision of the gateway, whose directory resolves the slug.
    pub gateway: Revision,
    /// The agent named by the slug, with the revision of its tenant.
    pub agent: Option<(AgentAccess, Revision)>,
}

impl Store {
    /// Number of lookups so far.
    pub fn key_lookups(&self) -> u64 {
        self.key_lookups.load(Ordering::Relaxed)
    }

    /// Looks up a key and the agent named by `slug`; `None` if the key does not exist or is revoked.
    pub async fn look_up_key(
        &self,
        hash: KeyHash,
        slug: Option<&str>,
    ) -> Result<Option<KeyLookup>, StoreError> {
        self.key_lookups.fetch_add(1, Ordering::Relaxed);
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select k.uid, k.tenant, k.principal, k.agent, k.scopes, k.labels, k.networks, k.created_at, k.expires_at,
                     k.limits as "limits: Json<RateLimit>", k.owner_limits as "owner_limits: Json<RateLimit>",
                     t.max_key_age_days as max_age,
                     own.revision as tenant_revision, gateway.revision as gateway_revision,
                     a.uid as "agent_uid?", a.tenant as "agent_tenant?", a.access as "access?",
                     a.enabled as "enabled?", a.only_resources as "only_resources?", coalesce(a.quota_holder, a.uid) as quota_holder, a.limits as "agent_limits?: Json<UseLimits>",
                     ta.limits as "agent_tenant_limits?: Json<UseLimits>",
                     theirs.revision as "agent_tenant_revision?"
                     from api_keys k
                     join tenants t on t.uid = k.tenant
                     join heads own on own.scope = k.tenant
                     join heads gateway on gateway.scope = $3
                     left join agents a on a.slug = $2 and a.deleted_at is null
                     left join tenants ta on ta.uid = a.tenant
                     left join heads theirs on theirs.scope = a.tenant
                     where k.hash = $1 and coalesce(k.revoked_at, 'infinity') = 'infinity'"#,
                    &hash.0[..],
                    slug,
                    Scope::GATEWAY.0,
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        let Some(row) = row else { return Ok(None) };
        let flags = row.enabled.zip(row.only_resources);
        let agent = match (row.agent_uid, row.agent_tenant, row.access, flags) {
            (Some(agent), Some(tenant), Some(access), Some(flags)) => {
                let limits = row.agent_limits.zip(row.agent_tenant_limits);
                let limits = limits.ok_or(StoreError::Unreadable("limits"))?;
                let revision = row.agent_tenant_revision.ok_or(StoreError::Unreadable("head"))?;
                let limits = AccessLimits {
                    quota_holder: AgentId(row.quota_holder.unwrap_or(agent)),
                    agent: limits.0.0,
                    tenant: limits.1.0,
                };
                let found = agent_access((TenantId(tenant), AgentId(agent)), &access, flags, limits)?;
                Some((found, Revision(revision)))
            }
            _ => None,
        };
        let credential = CredentialRow {
            uid: row.uid,
            principal: row.principal,
            agent: row.agent,
            scopes: row.scopes,
            labels: row.labels,
            networks: row.networks,
            created_at: row.created_at,
            expires_at: row.expires_at,
            limits: row.limits,
            owner_limits: row.owner_limits,
            max_age: row.max_age,
        };
        Ok(Some(KeyLookup {
            credential: credential.grant(TenantId(row.tenant))?,
            tenant: Revision(row.tenant_revision),
            gateway: Revision(row.gateway_revision),
            agent,
        }))
    }
}
