//! `/tenants`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::authority::Authority;
use super::definition::checks::Name;
use super::extract::{Condition, Json as Input, Nothing, Params, Segment, is_default, present};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::http::precondition::etag;
use crate::identity::tenants::{self, TenantChange};
use crate::model::agent::{KeyAge, Tenant};
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::model::limits::UseLimits;

/// A new tenant. `name` defaults to the id.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewTenant {
    id: String,
    name: Option<Name>,
    /// The maximum age of its keys, in days. Default: unlimited.
    #[schema(minimum = 1, maximum = 3650)]
    max_key_age_days: Option<u16>,
    /// Its limits, if they differ from the settings.
    limits: Option<UseLimits>,
    /// The initial limits of a new agent.
    agent_limits: Option<UseLimits>,
}

/// A change of a tenant.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = TenantPatch)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Update {
    #[serde(default, deserialize_with = "present")]
    name: Option<Name>,
    /// The maximum age of its keys, in days; `null`: unlimited.
    #[serde(default, deserialize_with = "present")]
    #[schema(minimum = 1, maximum = 3650)]
    max_key_age_days: Option<Option<u16>>,
    /// Replaced as a whole; `null` restores the settings.
    #[serde(default, deserialize_with = "present")]
    limits: Option<Option<UseLimits>>,
    /// The initial limits of a new agent, replaced as a whole; `null` restores the settings.
    #[serde(default, deserialize_with = "present")]
    agent_limits: Option<Option<UseLimits>>,
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
#[serde(rename_all = "camelCase")]
pub(super) struct TenantView {
    #[schema(value_type = String)]
    id: Slug,
    /// Its identity, which logs, metrics, traces and audit rows have; a tenant with the same id that is created later has
    /// another.
    uuid: Uuid,
    name: String,
    /// The maximum age of its keys, in days; `null`: unlimited.
    #[schema(minimum = 1, maximum = 3650)]
    max_key_age_days: Option<u16>,
    /// Its limits, if they differ from the settings.
    #[serde(skip_serializing_if = "is_default")]
    limits: UseLimits,
    /// The initial limits of a new agent, if they differ from the settings.
    #[serde(skip_serializing_if = "is_default")]
    agent_limits: UseLimits,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        Self {
            id: tenant.slug,
            uuid: tenant.uid.0,
            name: tenant.name,
            max_key_age_days: tenant.max_key_age.map(KeyAge::days),
            limits: tenant.limits,
            agent_limits: tenant.agent_limits,
            created_at: tenant.created_at,
        }
    }
}

fn checked_age(days: Option<u16>) -> Result<Option<KeyAge>, Fault> {
    let wrong = Fault::invalid_params("maxKeyAgeDays must be from 1 to 3650");
    days.map(|days| KeyAge::from_days(days).ok_or(wrong)).transpose()
}

/// Creates a tenant.
#[utoipa::path(
    post,
    path = "/admin/v1/tenants",
    operation_id = "createTenant",
    tag = "Tenants",
    request_body = NewTenant,
    responses((status = 201, description = "The tenant", body = TenantView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
    Input(new): Input<NewTenant>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let slug = Slug::parse(&new.id).map_err(|error| Fault::invalid_params(format!("id {error}")))?;
    let name = new.name.map_or_else(|| slug.to_string(), Name::into);
    let max_key_age = checked_age(new.max_key_age_days)?;
    let limits = app.settable.tenant(&authority, new.limits)?;
    let agent_limits = app.settable.agent(&authority, new.agent_limits)?;
    let new = tenants::NewTenant { slug, name, max_key_age, limits, agent_limits };
    let (status, audited) = authority.answers(StatusCode::CREATED);
    let tenant = app.identity.create_tenant(new, audited).await?;
    Ok((status, [(ETAG, etag(tenant.revision))], Json(TenantView::from(tenant))))
}

/// Lists tenants.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants",
    operation_id = "listTenants",
    tag = "Tenants",
    params(PageParams),
    responses((status = 200, description = "A page of tenants", body = Items<TenantView>), Problems)
)]
pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let page = params.verify(&app.cursor_signer, "tenants", Uuid::nil())?;
    let tenants = app.identity.tenants(&page.after, page.read()).await?;
    Ok(page.answer(tenants, |tenant| tenant.slug.to_string(), TenantView::from))
}

/// Reads a tenant.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{tenant}",
    operation_id = "readTenant",
    tag = "Tenants",
    params(("tenant" = String, Path, description = "The id of the tenant")),
    responses((status = 200, description = "The tenant", body = TenantView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let tenant = authority.tenant(&app.identity, &slug).await?;
    Ok(([(ETAG, etag(tenant.revision))], Json(TenantView::from(tenant))))
}

/// Changes a tenant.
#[utoipa::path(
    patch,
    path = "/admin/v1/tenants/{tenant}",
    operation_id = "updateTenant",
    tag = "Tenants",
    params(("tenant" = String, Path, description = "The id of the tenant"), Preconditions),
    request_body = Update,
    responses((status = 200, description = "The tenant", body = TenantView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<Update>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.identity, &slug).await?;
    let change = TenantChange {
        name: patch.name.map(Name::into),
        max_key_age: patch.max_key_age_days.map(checked_age).transpose()?,
        limits: patch.limits.map(|limits| app.settable.tenant(&authority, limits)).transpose()?,
        agent_limits: patch.agent_limits.map(|limits| app.settable.agent(&authority, limits)).transpose()?,
    };
    let (status, audited) = authority.answers(StatusCode::OK);
    let tenant = app.identity.update_tenant(tenant.slug, change, condition, audited).await?;
    Ok((status, [(ETAG, etag(tenant.revision))], Json(TenantView::from(tenant))))
}

/// Deletes a tenant with its agents.
#[utoipa::path(
    delete,
    path = "/admin/v1/tenants/{tenant}",
    operation_id = "deleteTenant",
    tag = "Tenants",
    params(("tenant" = String, Path, description = "The id of the tenant"), Preconditions),
    responses((status = 204, description = "Deleted", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.identity, &slug).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let written = app.identity.delete_tenant(tenant.slug, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}
