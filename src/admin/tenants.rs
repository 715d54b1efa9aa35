//! `/tenants`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use super::authority::Authority;
use super::definition::Name;
use super::extract::{Condition, Json as Input, Nothing, Params, Segment, present};
use super::page::PageParams;
use super::{Answer, App};
use crate::http::precondition::etag;
use crate::model::agent::Tenant;
use crate::model::fault::Fault;
use crate::model::ids::Slug;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTenant {
    id: String,
    name: Option<Name>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantPatch {
    #[serde(default, deserialize_with = "present")]
    name: Option<Name>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: Slug,
    name: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Tenant> for Shown {
    fn from(tenant: Tenant) -> Self {
        Self { id: tenant.slug, name: tenant.name, created_at: tenant.created_at }
    }
}

pub(super) async fn create(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
    Input(new): Input<NewTenant>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let slug = Slug::parse(&new.id).map_err(|error| Fault::invalid_params(format!("id {error}")))?;
    let name = new.name.map_or_else(|| slug.to_string(), Name::into);
    let tenant = app.registry.create_tenant(slug, name).await?;
    Ok((StatusCode::CREATED, [(ETAG, etag(tenant.revision))], Json(Shown::from(tenant))))
}

pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let page = params.open(&app.seal, "tenants", Uuid::nil())?;
    let tenants = app.registry.tenants(&page.after, page.read()).await?;
    Ok(page.answer(tenants, |tenant| tenant.slug.to_string(), Shown::from))
}

pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    let tenant = authority.tenant(&app.registry, &slug).await?;
    Ok(([(ETAG, etag(tenant.revision))], Json(Shown::from(tenant))))
}

pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<TenantPatch>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.registry, &slug).await?;
    let tenant = app.registry.rename_tenant(tenant.slug, patch.name.map(Name::into), condition).await?;
    Ok(([(ETAG, etag(tenant.revision))], Json(Shown::from(tenant))))
}

pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.registry, &slug).await?;
    let written = app.registry.delete_tenant(tenant.slug, condition).await?;
    Ok((StatusCode::NO_CONTENT, [(ETAG, etag(written.revision))]))
}
