//! `/agents`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::authority::Authority;
use super::definition::checks::{Instructions, Name};
use super::extract::{Condition, Json as Input, Nothing, Params, Segment, is_default, present};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::http::precondition::etag;
use crate::identity::agents::{AgentPatch, NewAgent};
use crate::model::agent::{Access, Agent, AgentDescription};
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::model::limits::UseLimits;
use crate::model::tool::{ToolSet, ToolSets};

/// A new agent. Defaults: its id as name, enabled, access with a key.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewAgent)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// `^[a-z0-9][a-z0-9_-]{0,62}$`, unique over the whole gateway.
    id: String,
    /// The id of the tenant, unless the query names it.
    tenant: Option<String>,
    name: Option<Name>,
    title: Option<Name>,
    instructions: Option<Instructions>,
    access: Option<Access>,
    /// The tools that it offers to clients that know only tools. Default: none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<ToolSet>, required = false)]
    tools: Option<ToolSets>,
    /// Default: enabled, unless the operator disabled the previous agent with this id and another caller creates this one.
    enabled: Option<bool>,
    /// Its limits; only the operator sets them. Default: those of the previous agent with this id, or the tenant's
    /// `agentLimits`.
    #[serde(default, deserialize_with = "present")]
    limits: Option<Option<UseLimits>>,
}

/// A change of an agent. Omitted members stay unchanged; `null` removes an optional one.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AgentPatch)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    #[serde(default, deserialize_with = "present")]
    name: Option<Name>,
    #[serde(default, deserialize_with = "present")]
    title: Option<Option<Name>>,
    #[serde(default, deserialize_with = "present")]
    instructions: Option<Option<Instructions>>,
    #[serde(default, deserialize_with = "present")]
    access: Option<Access>,
    /// Replaced as a whole; an empty list removes them.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<ToolSet>, required = false)]
    tools: Option<ToolSets>,
    /// An agent that the operator disabled is enabled by the operator only.
    #[serde(default, deserialize_with = "present")]
    enabled: Option<bool>,
    /// Replaced as a whole; `null` restores the settings. Only the operator changes them.
    #[serde(default, deserialize_with = "present")]
    limits: Option<Option<UseLimits>>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateParams {
    /// The id of the tenant, if the body names none.
    tenant: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// The tenant of the agents.
    tenant: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Agent)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentView {
    #[schema(value_type = String)]
    id: Slug,
    /// Its identity, which audit rows and traces have; an agent with the same id that is created later has another.
    uuid: Uuid,
    #[schema(value_type = String)]
    tenant: Slug,
    name: String,
    title: Option<String>,
    instructions: Option<String>,
    access: Access,
    enabled: bool,
    /// The tools that it offers.
    #[schema(value_type = Vec<ToolSet>)]
    tools: ToolSets,
    /// Its limits, if they differ from the settings.
    #[serde(skip_serializing_if = "is_default")]
    limits: UseLimits,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Agent> for AgentView {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.slug,
            uuid: agent.uid.0,
            tenant: agent.tenant_slug,
            name: agent.description.name,
            title: agent.description.title,
            instructions: agent.description.instructions,
            access: agent.access,
            enabled: agent.enabled,
            tools: agent.description.tools,
            limits: agent.limits,
            created_at: agent.created_at,
        }
    }
}

/// Creates an agent.
#[utoipa::path(
    post,
    path = "/admin/v1/agents",
    operation_id = "createAgent",
    tag = "Agents",
    params(CreateParams),
    request_body = Create,
    responses((status = 201, description = "The agent", body = AgentView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create(
    State(app): App,
    authority: Authority,
    Params(params): Params<CreateParams>,
    Input(new): Input<Create>,
) -> Answer<impl IntoResponse> {
    let slug = Slug::parse_agent(&new.id).map_err(|error| Fault::invalid_params(format!("id {error}")))?;
    let tenant = authority.tenant(&app.identity, &tenant_of(params.tenant, new.tenant)?).await?;
    let description = AgentDescription {
        name: new.name.map_or_else(|| slug.to_string(), Name::into),
        title: new.title.map(Name::into),
        instructions: new.instructions.map(Instructions::into),
        tools: new.tools.unwrap_or_default(),
    };
    let access = new.access.unwrap_or(Access::Key);
    let limits = new.limits.map(|limits| app.settable.agent(&authority, limits)).transpose()?;
    let by_operator = authority.is_operator();
    let (tenant, enabled) = (tenant.slug, new.enabled);
    let new = NewAgent { slug, tenant, description, access, enabled, limits, by_operator };
    let (status, audited) = authority.answers(StatusCode::CREATED);
    let agent = app.identity.create_agent(new, audited).await?;
    Ok((status, [(ETAG, etag(agent.revision))], Json(AgentView::from(agent))))
}

/// The tenant of a new agent, which the query or the body names.
fn tenant_of(query: Option<String>, body: Option<String>) -> Result<String, Fault> {
    match (query, body) {
        (Some(query), Some(body)) if query != body => {
            Err(Fault::invalid_params("tenant: the query and the body name different tenants"))
        }
        (query, body) => body.or(query).ok_or_else(|| Fault::invalid_params("missing field `tenant`")),
    }
}

/// Lists agents.
#[utoipa::path(
    get,
    path = "/admin/v1/agents",
    operation_id = "listAgents",
    tag = "Agents",
    params(ListParams),
    responses((status = 200, description = "A page of agents", body = Items<AgentView>), Problems)
)]
pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Params(params): Params<ListParams>,
) -> Answer<impl IntoResponse> {
    let own = authority.owner()?.map(|owner| owner.tenant);
    let tenant = match params.tenant {
        Some(slug) => Some(authority.tenant(&app.identity, &slug).await?.uid),
        None => own,
    };
    let uid = tenant.map_or(Uuid::nil(), |tenant| tenant.0);
    let page = PageParams::new(params.limit, params.cursor).verify(&app.cursor_signer, "agents", uid)?;
    let agents = app.identity.agents(tenant, &page.after, page.read()).await?;
    Ok(page.answer(agents, |agent| agent.slug.to_string(), AgentView::from))
}

/// Reads an agent.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}",
    operation_id = "readAgent",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent")),
    responses((status = 200, description = "The agent", body = AgentView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    Ok(([(ETAG, etag(agent.revision))], Json(AgentView::from(agent))))
}

/// Changes an agent.
#[utoipa::path(
    patch,
    path = "/admin/v1/agents/{agent}",
    operation_id = "updateAgent",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent"), Preconditions),
    request_body = Update,
    responses((status = 200, description = "The agent", body = AgentView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<Update>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    let patch = AgentPatch {
        name: patch.name.map(Name::into),
        title: patch.title.map(|title| title.map(Name::into)),
        instructions: patch.instructions.map(|text| text.map(Instructions::into)),
        tools: patch.tools,
        access: patch.access,
        enabled: patch.enabled,
        limits: patch.limits.map(|limits| app.settable.agent(&authority, limits)).transpose()?,
        by_operator: authority.is_operator(),
    };
    let (status, audited) = authority.answers(StatusCode::OK);
    let agent = app.identity.patch_agent(&agent, patch, condition, audited).await?;
    Ok((status, [(ETAG, etag(agent.revision))], Json(AgentView::from(agent))))
}

/// Deletes an agent with its catalog.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}",
    operation_id = "deleteAgent",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent"), Preconditions),
    responses((status = 204, description = "Deleted", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let revision = app.identity.delete_agent(&agent, condition, audited).await?;
    Ok((status, [(ETAG, etag(revision))]))
}
