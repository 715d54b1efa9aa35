//! The access decision about a key at an agent and the rule behind it, without a request.

use std::sync::Arc;

use super::Identity;
use super::access::decide;
use crate::model::agent::{AccessLimits, Agent, AgentAccess};
use crate::model::caller::{Credential, CredentialKind, Reach};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::key::ApiKey;
use crate::model::limits::UseLimits;

/// The rule by which a key would be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// It was revoked.
    Revoked,
    /// It expired, or exceeds the maximum age of its tenant.
    Expired,
    /// It may not be used from this address.
    Network,
    /// It does not reach the agent, which is not public.
    Agent,
    /// The agent is disabled.
    Disabled,
    /// It lacks the scope.
    Scope,
}

/// What a key would be admitted with.
#[derive(Debug, Clone)]
pub struct Admissible {
    /// What the key grants.
    pub credential: Credential,
    /// The limits of the agent and its tenant.
    pub limits: Arc<AccessLimits>,
}

impl Identity {
    /// Decides whether a key would be admitted at an agent, and by which rule it would be refused. `tenant` holds the limits of
    /// the agent's tenant; `client` is the address that it would be used from, if that is to be checked.
    pub fn would_admit(
        &self,
        key: &ApiKey,
        agent: &Agent,
        tenant: UseLimits,
        client: Option<ClientAddress>,
    ) -> Result<Admissible, (AccessRule, Fault)> {
        let refused = |rule| Err((rule, Fault::Unauthenticated));
        if key.revoked_at.is_some() {
            return refused(AccessRule::Revoked);
        }
        if key.expires_at.is_some_and(|end| end <= self.now()) {
            return refused(AccessRule::Expired);
        }
        if client.is_some_and(|client| !key.networks.allow(client)) {
            return refused(AccessRule::Network);
        }
        let credential = credential(key);
        let access = AgentAccess {
            agent: agent.uid,
            tenant: agent.tenant,
            access: agent.access,
            enabled: agent.enabled,
            only_resources: false,
            limits: Arc::new(AccessLimits { quota_holder: agent.quota_holder, agent: agent.limits, tenant }),
        };
        match decide(Some(&credential), Some(access)) {
            Ok(access) => Ok(Admissible { credential, limits: access.limits }),
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
        labels: key.labels.clone(),
        expires_at: key.expires_at,
        limits: key.limits,
    }
}
