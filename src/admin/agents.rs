//! `/agents`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use super::authority::Authority;
use super::definition::{Instructions, Name};
use super::extract::{Condition, Json as Input, Nothing, Params, Segment, present};
use super::page::PageParams;
use super::{Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::{Access, Agent, AgentDescription};
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::registry::agents::{AgentPatch, NewAgent};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    id: String,
    tenant: String,
    name: Option<Name>,
    title: Option<Name>,
    instructions: Option<Instructions>,
    access: Option<Access>,
    enabled: Option<bool>,
}

/// A member that is left out stays as it is, `null` takes away what an agent can do without.
#[derive(Debug, Deserialize)]
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
    #[serde(default, deserialize_with = "present")]
    enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    tenant: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: Slug,
    tenant: Slug,
    name: String,
    title: Option<String>,
    instructions: Option<String>,
    access: Access,
    enabled: bool,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Agent> for Shown {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.slug,
            tenant: agent.tenant_slug,
            name: agent.description.name,
            title: agent.description.title,
            instructions: agent.description.instructions,
            access: agent.access,
            enabled: agent.enabled,
            created_at: agent.created_at,
        }
    }
}

pub(super) async fn create(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
    Input(new): Input<Create>,
) -> Answer<impl IntoResponse> {
    let slug = Slug::parse_agent(&new.id).map_err(|error| Fault::invalid_params(format!("id {error}")))?;
    let tenant = authority.tenant(&app.registry, &new.tenant).await?;
    let description = AgentDescription {
        name: new.name.map_or_else(|| slug.to_string(), Name::into),
        title: new.title.map(Name::into),
        instructions: new.instructions.map(Instructions::into),
    };
    let access = new.access.unwrap_or(Access::Key);
    let enabled = new.enabled.unwrap_or(true);
    let new = NewAgent { slug, tenant: tenant.slug, description, access, enabled };
    let agent = app.registry.create_agent(new).await?;
    Ok((StatusCode::CREATED, [(ETAG, etag(agent.revision))], Json(Shown::from(agent))))
}

pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Params(params): Params<ListParams>,
) -> Answer<impl IntoResponse> {
    let own = authority.owner()?.map(|owner| owner.tenant);
    let tenant = match params.tenant {
        Some(slug) => Some(authority.tenant(&app.registry, &slug).await?.uid),
        None => own,
    };
    let uid = tenant.map_or(Uuid::nil(), |tenant| tenant.0);
    let page = PageParams::new(params.limit, params.cursor).open(&app.seal, "agents", uid)?;
    let agents = app.registry.agents(tenant, &page.after, page.read()).await?;
    Ok(page.answer(agents, |agent| agent.slug.to_string(), Shown::from))
}

pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.registry, &slug).await?;
    Ok(([(ETAG, etag(agent.revision))], Json(Shown::from(agent))))
}

pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<Update>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.registry, &slug).await?;
    let patch = AgentPatch {
        name: patch.name.map(Name::into),
        title: patch.title.map(|title| title.map(Name::into)),
        instructions: patch.instructions.map(|text| text.map(Instructions::into)),
        access: patch.access,
        enabled: patch.enabled,
    };
    let agent = app.registry.patch_agent(&agent, patch, condition).await?;
    Ok(([(ETAG, etag(agent.revision))], Json(Shown::from(agent))))
}

pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.registry, &slug).await?;
    let revision = app.registry.delete_agent(&agent, condition).await?;
    Ok((StatusCode::NO_CONTENT, [(ETAG, etag(revision))]))
}
