//! The access decision of the administration API.

use std::sync::Arc;

use http::StatusCode;

use crate::http::context::RequestContext;
use crate::http::intake::SharedContext;
use crate::identity::Identity;
use crate::identity::grant::Grant;
use crate::model::agent::{Agent, Tenant};
use crate::model::audit::encoding;
use crate::model::audit::event::{self, Actor};
use crate::model::audit::row::AgentFilter;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::{Credential, CredentialKind, KeyScope, Reach};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, Slug, TenantId};
use crate::model::key::ApiKey;
use crate::model::key_bounds::Maker;
use crate::telemetry::span;

/// A caller with a verified credential, and the call that it makes.
pub(super) struct Authority {
    holder: CredentialHolder,
    call: Arc<SharedContext>,
}

/// The holder of a credential.
pub(super) enum CredentialHolder {
    /// The operator, with one of the operator keys: may do everything.
    Operator(KeyId),
    /// An owner key, an agent key, or an access token, which has the privileges of an agent key.
    Key(Arc<Grant>),
}

impl Authority {
    /// Records the caller of a call.
    pub(super) fn new(holder: CredentialHolder, call: &Arc<SharedContext>) -> Self {
        let actor = match &holder {
            CredentialHolder::Operator(key) => Actor::operator(*key),
            CredentialHolder::Key(grant) => Actor::from(&**grant),
        };
        call.with(|context| context.event.actor = actor);
        Self { holder, call: Arc::clone(call) }
    }

    /// The grant of the credential; `None` for the operator.
    pub(super) fn grant(&self) -> Option<&Arc<Grant>> {
        match &self.holder {
            CredentialHolder::Operator(_) => None,
            CredentialHolder::Key(grant) => Some(grant),
        }
    }

    /// The call.
    pub(super) fn call(&self) -> &SharedContext {
        &self.call
    }

    /// The status that the call answers with, and its write, whose audit row has that status. A call that answers
    /// otherwise has a second row.
    pub(super) fn answers(&self, status: StatusCode) -> (StatusCode, AuditedWrite) {
        (status, self.audited_write(status, status))
    }

    /// As [`answers`](Self::answers), for a call that creates or replaces: the status of either.
    pub(super) fn answers_put(&self) -> (impl Fn(bool) -> StatusCode, AuditedWrite) {
        let status = |created| if created { StatusCode::CREATED } else { StatusCode::OK };
        (status, self.audited_write(status(true), status(false)))
    }

    /// A write waits in a queue of its own, and not with the permit for the queries that precede it.
    fn audited_write(&self, created: StatusCode, changed: StatusCode) -> AuditedWrite {
        self.call.intake.release_query();
        AuditedWrite::new(Arc::clone(&self.call) as Arc<_>, created.as_u16(), changed.as_u16())
    }

    /// Records the agent of the call.
    fn about_agent(&self, agent: &Agent) {
        span::record_agent(agent.slug.as_str());
        span::record_tenant(agent.tenant);
        self.call.with(|RequestContext { event, .. }| {
            (event.agent, event.tenant) = (Some(agent.uid), Some(agent.tenant));
        });
    }

    /// Records the tenant of the call.
    fn about_tenant(&self, tenant: &Tenant) {
        span::record_tenant(tenant.uid);
        self.call.with(|context| context.event.tenant = Some(tenant.uid));
    }

    /// Requires the operator.
    pub(super) fn operator(&self) -> Result<(), Fault> {
        match &self.holder {
            CredentialHolder::Operator(_) => Ok(()),
            CredentialHolder::Key(_) => Err(Fault::not_permitted("this call requires the operator key")),
        }
    }

    /// The creator recorded for keys that the caller creates, rotates or changes.
    pub(super) fn maker(&self) -> Maker {
        match &self.holder {
            CredentialHolder::Operator(_) => Maker::Operator,
            CredentialHolder::Key(grant) => Maker::Key(grant.credential.key),
        }
    }

    /// Whether the caller is the operator.
    pub(super) fn is_operator(&self) -> bool {
        matches!(self.holder, CredentialHolder::Operator(_))
    }

    /// The calling owner key; `None` for the operator; an agent key and a token are refused.
    pub(super) fn owner(&self) -> Result<Option<&Credential>, Fault> {
        match &self.holder {
            CredentialHolder::Operator(_) => Ok(None),
            CredentialHolder::Key(grant) if grant.credential.kind != CredentialKind::OwnerKey => {
                Err(Fault::not_permitted("this call requires an owner key or the operator key"))
            }
            CredentialHolder::Key(grant) if !grant.credential.allows(KeyScope::Registry) => {
                Err(Fault::InsufficientScope(KeyScope::Registry.as_str()))
            }
            CredentialHolder::Key(grant) => Ok(Some(&grant.credential)),
        }
    }

    /// A tenant that the caller may read: its own; for the operator any.
    pub(super) async fn tenant(&self, identity: &Identity, slug: &str) -> Result<Tenant, Fault> {
        let owner = self.owner()?;
        let tenant = identity.tenant(&Slug::parse(slug).map_err(|_| Fault::NO_TENANT)?).await?;
        if owner.is_some_and(|owner| owner.tenant != tenant.uid) {
            return Err(Fault::NO_TENANT);
        }
        self.about_tenant(&tenant);
        Ok(tenant)
    }

    /// An agent that the caller may manage: one of its tenant; for the operator any.
    pub(super) async fn agent(&self, identity: &Identity, slug: &str) -> Result<Agent, Fault> {
        let owner = self.owner()?;
        let agent = identity.agent(slug).await?;
        if owner.is_some_and(|owner| !owner.reaches(agent.tenant, agent.uid)) {
            return Err(Fault::NO_AGENT);
        }
        self.about_agent(&agent);
        Ok(agent)
    }

    /// An agent whose catalog the caller may change: as [`agent`](Self::agent), and for an agent key with the scope
    /// `registry` its own.
    pub(super) async fn catalog_of(&self, identity: &Identity, slug: &str) -> Result<Agent, Fault> {
        let agent = identity.agent(slug).await?;
        if let CredentialHolder::Key(grant) = &self.holder {
            if !grant.credential.reaches(agent.tenant, agent.uid) {
                return Err(Fault::NO_AGENT);
            }
            self.about_agent(&agent);
            if !grant.credential.allows(KeyScope::Registry) {
                return Err(Fault::InsufficientScope(KeyScope::Registry.as_str()));
            }
        }
        self.about_agent(&agent);
        Ok(agent)
    }

    /// The audit rows that the caller may read: for the operator all, for a key with the scope `audit` those of its tenant
    /// or its agents.
    pub(super) fn audit(&self) -> Result<VisibleRows, Fault> {
        match &self.holder {
            CredentialHolder::Operator(_) => Ok(VisibleRows { tenant: None, agents: None, hidden: true }),
            CredentialHolder::Key(grant) if grant.credential.allows(KeyScope::Audit) => {
                let agents = match &grant.credential.reach {
                    Reach::Tenant => None,
                    Reach::Agents(agents) => Some(agents.clone()),
                };
                let hidden = grant.credential.kind == CredentialKind::OwnerKey;
                Ok(VisibleRows { tenant: Some(grant.credential.tenant), agents, hidden })
            }
            CredentialHolder::Key(_) => Err(Fault::InsufficientScope(KeyScope::Audit.as_str())),
        }
    }

    /// Whether the caller may revoke or rotate a key: the operator any, an owner the keys of its agents.
    pub(super) fn manages(&self, key: &ApiKey) -> Result<(), Fault> {
        match self.owner()? {
            None => Ok(()),
            Some(owner) if owner.tenant == key.tenant && key.agent.is_some() => Ok(()),
            Some(_) => Err(Fault::NotFound("key")),
        }
    }
}

/// The audit rows that a caller may read.
#[derive(Debug, Clone)]
pub(super) struct VisibleRows {
    /// Of one tenant; `None` for all.
    pub(super) tenant: Option<TenantId>,
    /// Of these agents; `None` for all.
    agents: Option<Vec<AgentId>>,
    /// Whether they say what was hidden: to the operator and the owner.
    hidden: bool,
}

impl VisibleRows {
    /// Whether the caller is shown which rows name something that is hidden from their callers.
    pub(super) fn sees_hidden(&self) -> bool {
        self.hidden
    }

    /// A tenant whose rows the caller may read.
    pub(super) async fn tenant_called(&self, identity: &Identity, slug: &str) -> Result<TenantId, Fault> {
        let tenant = identity.tenant(&Slug::parse(slug).map_err(|_| Fault::NO_TENANT)?).await?.uid;
        if self.tenant.is_none_or(|own| own == tenant) { Ok(tenant) } else { Err(Fault::NO_TENANT) }
    }

    /// The agents that a filter names: by id, or by the `agentId` of a row, for deleted agents. The operator also finds rows
    /// that name an agent which does not exist.
    pub(super) async fn agents_named(&self, identity: &Identity, name: &str) -> Result<AgentFilter, Fault> {
        let registered = match identity.agent(name).await {
            Ok(agent) => Some(agent),
            Err(Fault::NotFound(_)) => None,
            Err(fault) => return Err(fault),
        };
        let registered = registered.filter(|agent| self.tenant.is_none_or(|own| own == agent.tenant));
        let by_id = name.parse().map(AgentId).ok();
        let ids = registered.map(|agent| agent.uid).into_iter().chain(by_id);
        let ids: Vec<_> = ids.filter(|agent| self.sees(*agent)).collect();
        if self.tenant.is_some() && ids.is_empty() {
            return Err(Fault::NO_AGENT);
        }
        let name = self.agents.is_none().then(|| encoding::line(&event::named(name)).into_owned());
        Ok(AgentFilter { ids, name })
    }

    /// Whether the caller may read an agent's rows, if it may read those of the tenant.
    pub(super) fn sees(&self, agent: AgentId) -> bool {
        self.agents.as_ref().is_none_or(|own| own.contains(&agent))
    }

    /// The only agent of the caller, if the filter names none; `None` for all agents.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if the caller has several and must name one.
    pub(super) fn only_agent(&self) -> Result<Option<AgentFilter>, Fault> {
        match self.agents.as_deref() {
            None => Ok(None),
            Some([only]) => Ok(Some(AgentFilter { ids: vec![*only], name: None })),
            Some(_) => Err(Fault::invalid_params("agent must be one of the agents of this token")),
        }
    }
}
