//! `/agents/{agent}/explain`: whether a request with a key would be admitted, and by which rule.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::authority::Authority;
use super::extract::{Json as Input, Nothing, Params, Segment};
use super::openapi::WriteProblems;
use super::services::{Admin, Answer, App};
use crate::http::problem::status;
use crate::identity::explain::AccessRule;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::ids::KeyId;
use crate::model::key::ApiKey;
use crate::model::method::{CostClass, Method};
use crate::quota::limits::RateLimitSubject;
use crate::quota::usage::QuotaSubject;

/// The properties of a request on which the decision depends.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExplainRequest)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Question {
    /// The id of the key.
    #[schema(value_type = uuid::Uuid)]
    key_id: KeyId,
    /// The message. Default: `resources/read`.
    request: Option<ExplainMessage>,
    /// The address of the client. If omitted, the networks of the key are not checked.
    #[schema(value_type = Option<String>, example = "192.0.2.1")]
    address: Option<IpAddr>,
}

/// An MCP message. The objects named by its parameters are not looked up.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExplainMessage)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainMessage {
    /// Its method, which decides its cost.
    method: String,
}

/// The decision.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation {
    /// Whether the request would be admitted.
    allowed: bool,
    /// The rule that decides.
    rule: Rule,
    /// The stable name of the refusal.
    code: Option<&'static str>,
    /// The HTTP status of the answer.
    status: u16,
    /// The message of the refusal.
    detail: Option<String>,
}

/// The rules, in the order in which they are checked.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Rule {
    /// The key was revoked.
    Revoked,
    /// The key expired, or is older than its tenant permits.
    Expired,
    /// The address is not in the networks of the key.
    Network,
    /// The key is not valid for that agent.
    WrongAgent,
    /// The agent is disabled.
    AgentDisabled,
    /// The key lacks a scope.
    MissingScope,
    /// A rate limit is exceeded now.
    RateLimit,
    /// A quota is exceeded.
    Quota,
    /// The request is admitted.
    Allowed,
}

impl From<AccessRule> for Rule {
    fn from(rule: AccessRule) -> Self {
        match rule {
            AccessRule::Revoked => Self::Revoked,
            AccessRule::Expired => Self::Expired,
            AccessRule::Network => Self::Network,
            AccessRule::Agent => Self::WrongAgent,
            AccessRule::Disabled => Self::AgentDisabled,
            AccessRule::Scope => Self::MissingScope,
        }
    }
}

/// Explains whether this replica would admit a request with a key now, and by which rule. Charges nothing to any limit.
#[utoipa::path(
    post,
    path = "/admin/v1/agents/{agent}/explain",
    operation_id = "explainAccess",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent")),
    request_body = Question,
    responses((status = 200, description = "The decision", body = Explanation), WriteProblems)
)]
pub(super) async fn explain(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Input(question): Input<Question>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    let key = app.identity.key(question.key_id).await?;
    // Nothing about another tenant's key is revealed to an owner.
    if authority.owner()?.is_some_and(|owner| owner.tenant != key.tenant) {
        return Err(Fault::NotFound("key").into());
    }
    let decided = decide(&app, &key, &agent, &question).await?;
    let (rule, fault) = decided.err().map_or((Rule::Allowed, None), |(rule, fault)| (rule, Some(fault)));
    Ok(Json(Explanation {
        allowed: fault.is_none(),
        rule,
        code: fault.as_ref().map(Fault::name),
        status: fault.as_ref().map_or(200, |fault| status(fault).as_u16()),
        detail: fault.map(|fault| fault.to_string()),
    }))
}

async fn decide(
    app: &Admin,
    key: &ApiKey,
    agent: &Agent,
    question: &Question,
) -> Result<Result<(), (Rule, Fault)>, Fault> {
    let tenant = app.identity.tenant(&agent.tenant_slug).await?;
    let would_be = match app.identity.would_admit(key, agent, tenant.limits, question.address.map(Into::into))
    {
        Ok(would_be) => would_be,
        Err((rule, fault)) => return Ok(Err((rule.into(), fault))),
    };
    let cost = match &question.request {
        None => CostClass::Read,
        Some(message) => Method::parse(&message.method).map_or(CostClass::Other, Method::cost),
    };
    let subject = RateLimitSubject {
        credential: Some(&would_be.credential),
        tenant: agent.tenant,
        agent: agent.uid,
        limits: &would_be.limits,
    };
    if let Err(fault) = app.authenticator.limits().would_charge(&subject, app.costs.of(cost)) {
        return Ok(Err((Rule::RateLimit, fault)));
    }
    let own = subject.is_own();
    let quotas = QuotaSubject { agent: agent.uid, tenant: agent.tenant, limits: &would_be.limits, own };
    match app.usage.would_take(quotas).await {
        Err(fault @ Fault::QuotaExceeded { .. }) => Ok(Err((Rule::Quota, fault))),
        other => other.map(Ok),
    }
}
