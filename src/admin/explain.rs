//! `/agents/{agent}/explain`: whether a request with a key would be admitted, and by which rule.

use std::net::IpAddr;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uri_template::iri::encode_literals;
use utoipa::ToSchema;

use super::authority::Authority;
use super::extract::{Json as Input, Nothing, Params, Segment};
use super::openapi::WriteProblems;
use super::services::{Admin, Answer, App};
use crate::catalog::snapshot::view::{Answering, View};
use crate::http::problem::status;
use crate::identity::explain::AccessRule;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::ids::{KeyId, ResourceUri, Slug};
use crate::model::key::ApiKey;
use crate::model::method::{CostClass, Method};
use crate::model::prompt::Prompt;
use crate::model::template::ResourceTemplate;
use crate::model::tool::{self, FixedTool, FoundId, ToolSet, can_be_tool};
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

/// An MCP message. What its parameters name is looked up only to see whether labels hide it from the key.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExplainMessage)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExplainMessage {
    /// As in a message that was sent; not evaluated.
    #[serde(rename = "jsonrpc")]
    #[schema(value_type = Option<Value>)]
    _jsonrpc: Option<IgnoredAny>,
    /// As in a message that was sent; not evaluated.
    #[serde(rename = "id")]
    #[schema(value_type = Option<Value>)]
    _id: Option<IgnoredAny>,
    /// Its method, which decides its cost.
    method: String,
    /// Its parameters, an object, of which those count that name a resource, a prompt or a template.
    #[serde(default)]
    #[schema(value_type = Option<Object>, example = json!({"uri": "file:///guide"}))]
    params: Value,
}

impl ExplainMessage {
    /// The message as a request.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if no revision has its method, or its parameters are not an object.
    fn parse(&self) -> Result<Named<'_>, Fault> {
        let method = Method::parse(&self.method)
            .ok_or_else(|| Fault::unknown("method", &self.method).within("request.method"))?;
        if !(self.params.is_object() || self.params.is_null()) {
            return Err(Fault::invalid_params("request.params must be an object"));
        }
        Ok(Named { method, params: &self.params })
    }
}

/// A request, by what it names.
#[derive(Debug, Clone, Copy)]
struct Named<'q> {
    method: Method,
    params: &'q Value,
}

impl<'q> Named<'q> {
    /// A text among its parameters.
    fn text(self, pointer: &str) -> Option<&'q str> {
        self.params.pointer(pointer).and_then(Value::as_str)
    }
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
    /// Where the content of the resource comes from that an admitted request names, if it comes from a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<ServedFrom>,
}

/// Where the content of a resource comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServedFrom {
    /// The id of the connection.
    #[schema(value_type = String)]
    connection: Slug,
    /// The name of the mount, if the resource is a file of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    mount: Option<Slug>,
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
    /// Labels hide what the request names from the key; it is answered like what is not registered.
    Label,
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
    let message = question.request.as_ref().map(ExplainMessage::parse).transpose()?;
    let decided = decide(&app, &key, &agent, question.address, message).await?;
    let (rule, fault, source) = match decided {
        Ok(source) => (Rule::Allowed, None, source),
        Err((rule, fault)) => (rule, Some(fault), None),
    };
    Ok(Json(Explanation {
        allowed: fault.is_none(),
        rule,
        code: fault.as_ref().map(Fault::name),
        status: fault
            .as_ref()
            .filter(|_| !matches!(rule, Rule::Label))
            .map_or(200, |fault| status(fault).as_u16()),
        detail: fault.map(|fault| fault.to_string()),
        source,
    }))
}

/// The rule that refuses the request, or where the content comes from that it names.
async fn decide(
    app: &Admin,
    key: &ApiKey,
    agent: &Agent,
    address: Option<IpAddr>,
    message: Option<Named<'_>>,
) -> Result<Result<Option<ServedFrom>, (Rule, Fault)>, Fault> {
    let tenant = app.identity.tenant(&agent.tenant_slug).await?;
    let would_be = match app.identity.would_admit(key, agent, tenant.limits, address.map(Into::into)) {
        Ok(would_be) => would_be,
        Err((rule, fault)) => return Ok(Err((rule.into(), fault))),
    };
    let cost = message.map_or(CostClass::Read, cost_of);
    let is_own = would_be.credential.reaches(agent.tenant, agent.uid);
    let subject = RateLimitSubject {
        credential: Some(&would_be.credential),
        tenant: agent.tenant,
        agent: agent.uid,
        limits: &would_be.limits,
        is_own,
        limiters: None,
    };
    if let Err(fault) = app.authenticator.limits().would_charge(&subject, app.costs.of(cost)) {
        return Ok(Err((Rule::RateLimit, fault)));
    }
    let quotas =
        QuotaSubject { agent: agent.uid, tenant: agent.tenant, limits: Some(&would_be.limits), is_own };
    match app.usage.would_take(quotas).await {
        Err(fault @ Fault::QuotaExceeded { .. }) => return Ok(Err((Rule::Quota, fault))),
        other => other?,
    }
    let Some(message) = message else { return Ok(Ok(None)) };
    let labels = would_be.credential.labels_at(agent.tenant, agent.uid);
    let view = app.catalog.view_with(agent.into(), labels).await?;
    Ok(match hidden(&view, message) {
        Some(fault) => Err((Rule::Label, fault)),
        None => Ok(served_from(&view, message)),
    })
}

/// Where the content of the resource comes from that a message names.
fn served_from(view: &View, message: Named<'_>) -> Option<ServedFrom> {
    let uri = match message.method {
        Method::ReadResource | Method::Subscribe => message.text("/uri"),
        Method::CallTool => match FixedTool::parse(message.text("/name")?)? {
            FixedTool::ReadResource => message.text("/arguments/uri"),
            FixedTool::Fetch => match FoundId::parse(message.text("/arguments/id")?) {
                FoundId::Uri(uri) => Some(uri),
                FoundId::Prompt(_) => None,
            },
            _ => None,
        },
        _ => None,
    };
    let uri = ResourceUri::parse(uri?).ok()?;
    let answering = view.answering(&uri).ok()?;
    let connection = answering.connection()?.clone();
    let is_mounted = matches!(answering, Answering::Mounted(..));
    let mount = view.mounted(uri.as_str()).filter(|_| is_mounted).map(|(mount, _)| mount.name.clone());
    Some(ServedFrom { connection, mount })
}

fn cost_of(message: Named<'_>) -> CostClass {
    match message.method {
        Method::CallTool => {
            let id = || message.text("/arguments/id");
            message.text("/name").map_or(CostClass::Other, |name| tool::cost_of(name, id))
        }
        method => method.cost(),
    }
}

/// The answer to a message, if it names something that exists and is hidden.
fn hidden(view: &View, message: Named<'_>) -> Option<Fault> {
    let text = |pointer| message.text(pointer);
    match message.method {
        Method::ReadResource | Method::Subscribe => hidden_uri(view, text("/uri")?),
        Method::CallTool => hidden_by_tool(view, text("/name")?, message),
        Method::GetPrompt => hidden_prompt(view, text("/name")?),
        Method::Complete if text("/ref/type") == Some("ref/prompt") => {
            hidden_prompt(view, text("/ref/name")?)
        }
        Method::Complete => {
            let template = encode_literals(text("/ref/uri")?);
            let fault = || Fault::unknown("resource template", &template);
            view.hides::<ResourceTemplate>(&template).then(fault)
        }
        Method::GetSkill => hidden_skill(view, text("/uri")?, "skill"),
        Method::ReadDirectory => hidden_skill(view, text("/uri")?, "directory"),
        _ => None,
    }
}

/// The answer to the call of a tool that the agent offers, if it names something that is hidden.
fn hidden_by_tool(view: &View, name: &str, message: Named<'_>) -> Option<Fault> {
    let sets = view.snapshot().description.tools;
    let Some(fixed) = FixedTool::parse(name) else {
        let hides = sets.contains(ToolSet::PromptTools) && can_be_tool(name) && view.hides::<Prompt>(name);
        return hides.then(|| Fault::unknown("tool", name));
    };
    match fixed {
        _ if !sets.contains(fixed.set()) => None,
        FixedTool::ReadResource => hidden_uri(view, message.text("/arguments/uri")?),
        FixedTool::GetPrompt => hidden_prompt(view, message.text("/arguments/name")?),
        FixedTool::Fetch => hidden_id(view, message.text("/arguments/id")?),
        FixedTool::Search | FixedTool::ListResources | FixedTool::ListPrompts => None,
    }
}

/// As `fetch` refuses what is hidden.
fn hidden_id(view: &View, id: &str) -> Option<Fault> {
    let refused = |text: &str| match ResourceUri::parse(text) {
        Ok(uri) => Fault::ResourceNotFound(uri),
        Err(error) => Fault::invalid_params(format!("arguments.id {error}")),
    };
    match FoundId::parse(id) {
        FoundId::Prompt(name) => view.hides::<Prompt>(name).then(|| refused(id)),
        // Its text without variables is also a URI, which something else may answer.
        FoundId::Uri(text) if ResourceUri::parse(text).is_err() => {
            view.hides::<ResourceTemplate>(&encode_literals(text)).then(|| refused(text))
        }
        FoundId::Uri(text) => hidden_uri(view, text),
    }
}

fn hidden_uri(view: &View, uri: &str) -> Option<Fault> {
    let uri = ResourceUri::parse(uri).ok()?;
    view.hides_uri(&uri).then_some(Fault::ResourceNotFound(uri))
}

fn hidden_skill(view: &View, uri: &str, what: &'static str) -> Option<Fault> {
    let uri = ResourceUri::parse(uri).ok()?;
    view.hides_skill(uri.as_str()).then_some(Fault::UnknownUri { what, uri })
}

fn hidden_prompt(view: &View, name: &str) -> Option<Fault> {
    view.hides::<Prompt>(name).then(|| Fault::unknown_prompt(name))
}
