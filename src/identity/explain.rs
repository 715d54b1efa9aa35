//! What would be decided about a key at an agent, by which rule, without a request.

use std::sync::Arc;

use super::Identity;
use super::access::decide;
use crate::model::agent::{AccessLimits, Agent, AgentAccess};
use crate::model::api_key::ApiKey;
use crate::model::caller::{Credential, CredentialKind, Reach};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::limits::UseLimits;

/// Why a key would not be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// It was revoked.
    Revoked,
    /// It expired, or is older than its tenant lets keys become.
    Expired,
    /// It may not be used from there.
    Network,
    /// It does not reach that agent, which is not public either.
    Agent,
    /// The agent is disabled.
    Disabled,
    /// It lacks the scope.
    Scope,
}

/// What a key would be let in as.
#[derive(Debug, Clone)]
pub struct WouldBe {
    /// What the key grants.
    pub credential: Credential,
    /// How much may be used.
    pub limits: Arc<AccessLimits>,
}

impl Identity {
    /// What a key would be let in as at an agent, or by which rule and with what it would be refused. `tenant` is what
    /// was set for the agent's tenant; `client` where it would be used from, if that is to be looked at.
    pub fn would_admit(
        &self,
        key: &ApiKey,
        agent: &Agent,
        tenant: UseLimits,
        client: Option<ClientAddress>,
    ) -> Result<WouldBe, (AccessRule, Fault)> {
        let refused = |rule| Err((rule, Fault::Unauthenticated));
        if key.revoked_at.is_some() {
            return refused(AccessRule::Revoked);
        }
        if key.expires_at.is_some_and(|end| end <= self.now()) {
            return refused(AccessRule::Expired);
        }
        if client.is_some_and(|client| !key.networks.admit(client)) {
            return refused(AccessRule::Network);
        }
        let credential = credential(key);
        let access = AgentAccess {
            agent: agent.uid,
            tenant: agent.tenant,
            access: agent.access,
            enabled: agent.enabled,
            limits: Arc::new(AccessLimits { quota_holder: agent.quota_holder, agent: agent.limits, tenant }),
        };
        match decide(Some(&credential), Some(access)) {
            Ok(access) => Ok(WouldBe { credential, limits: access.limits }),
            Err(fault) => Err((rule(&fault), fault)),
        }
    }
}

fn rule(fault: &Fault) -> AccessRule {
    match fault {
        Fault::AgentDisabled => AccessRule::Disabled,
        Fault::InsufficientScope(_) => AccessRule::Scope,
        _ => AccessRule::Agent,
    }
}

fn credential(key: &ApiKey) -> Credential {
    let (kind, reach) = match key.agent {
        Some(agent) => (CredentialKind::AgentKey, Reach::Agents(vec![agent])),
        None => (CredentialKind::OwnerKey, Reach::Tenant),
    };
    Credential {
        kind,
        key: key.uid,
        principal: key.principal,
        tenant: key.tenant,
        reach,
        networks: key.networks.clone(),
        scopes: key.scopes.clone(),
        expires_at: key.expires_at,
        limits: key.limits,
    }
}
