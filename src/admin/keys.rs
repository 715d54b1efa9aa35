//! Keys of agents and of tenants.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::authority::Authority;
use super::definition::checks::Name;
use super::extract::{
    Condition, Json as Input, Nothing, Params, Segment, is_default, optional_json, present,
};
use super::instant;
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Admin, Answer, App};
use crate::http::precondition::etag;
use crate::identity::keys::{IssuedKey, KeyChange, NewKey};
use crate::model::caller::KeyScope;
use crate::model::client_address::Networks;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
use crate::model::key::ApiKey;
use crate::model::label::{Label, Labels};
use crate::model::limits::RateLimit;

const DEFAULT_GRACE: u64 = 3_600;
/// Thirty days.
const LONGEST_GRACE: u64 = 30 * 24 * 3_600;

/// A new key.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewKey)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Create {
    name: Option<Name>,
    /// Default: `mcp` for an agent key, all for an owner key; at most those of the calling key.
    scopes: Option<Vec<KeyScope>>,
    /// The expiry (RFC 3339), or a date, at whose beginning in UTC it expires. Default and maximum: that of the calling key.
    /// Beyond the tenant's `maxKeyAgeDays` it is refused.
    #[serde(default, deserialize_with = "instant::deserialize")]
    expires_at: Option<OffsetDateTime>,
    /// The networks or addresses it is valid from. Default and maximum: those of the calling key.
    #[schema(max_items = 32)]
    networks: Option<Vec<String>>,
    /// What it sees besides the definitions without labels: those that have one of these. Owner keys see everything and
    /// have none.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    /// Its limits, if they differ from the settings; at most those of the calling key.
    limits: Option<RateLimit>,
}

/// A change of a key.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = KeyPatch)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Update {
    /// Replaced as a whole; `null` restores the settings. Those of the operator and of owners are separate, and the tighter
    /// apply.
    #[serde(default, deserialize_with = "present")]
    limits: Option<Option<RateLimit>>,
    /// Replaced as a whole; an empty list removes them.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<Label>, max_items = 16, required = false)]
    labels: Option<Labels>,
}

/// The rotation of a key.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = Rotation)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rotate {
    /// How long the old key remains valid, in seconds.
    #[schema(maximum = 2_592_000, default = 3600)]
    grace_seconds: Option<u64>,
}

/// The scope of a revocation.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocation {
    /// Whether the keys created by its principal are revoked as well, with those that they created.
    #[serde(default)]
    #[param(default = false)]
    descendants: bool,
}

/// A key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Key)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyView {
    #[schema(value_type = Uuid)]
    id: KeyId,
    /// The key itself, only in the answer that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Its first 12 characters.
    display: String,
    name: String,
    scopes: Vec<KeyScope>,
    #[schema(value_type = Vec<Label>)]
    labels: Labels,
    /// Its limits, if they differ from the settings.
    #[serde(skip_serializing_if = "is_default")]
    limits: RateLimit,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// The expiry: the requested one, or the one that the tenant's maximum age implies.
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    /// The networks it is valid from; an empty list: all.
    networks: Vec<String>,
    /// The principal of the key that created or rotated it; absent if the operator did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    created_by: Option<PrincipalId>,
    #[serde(with = "time::serde::rfc3339::option")]
    revoked_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    /// To the minute.
    last_used_at: Option<OffsetDateTime>,
}

impl From<ApiKey> for KeyView {
    fn from(key: ApiKey) -> Self {
        let to_the_minute = |at: OffsetDateTime| at.replace_nanosecond(0).and_then(|at| at.replace_second(0));
        Self {
            id: key.uid,
            key: None,
            display: key.display,
            name: key.name,
            scopes: key.scopes,
            labels: key.labels,
            limits: key.limits.combined(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            networks: key.networks.to_texts(),
            created_by: key.maker,
            revoked_at: key.revoked_at,
            last_used_at: key.last_used_at.and_then(|at| to_the_minute(at).ok()),
        }
    }
}

/// The only answer that contains a secret.
fn issued(status: StatusCode, issued: IssuedKey) -> impl IntoResponse {
    let tag = etag(issued.key.revision);
    let secret = issued.secret.reveal().to_owned();
    (status, [(ETAG, tag)], Json(KeyView { key: Some(secret), ..KeyView::from(issued.key) }))
}

fn checked_scopes(given: Option<Vec<KeyScope>>) -> Result<Option<Vec<KeyScope>>, Fault> {
    let Some(mut scopes) = given else { return Ok(None) };
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() { Err(Fault::invalid_params("scopes must not be empty")) } else { Ok(Some(scopes)) }
}

fn checked_networks(given: Option<Vec<String>>) -> Result<Option<Networks>, Fault> {
    let parse = |given: Vec<String>| Networks::parse(given.iter().map(String::as_str));
    given.map(parse).transpose().map_err(|error| Fault::invalid_params(error.to_string()))
}

/// Creates a key of an agent, or an owner key of a tenant.
async fn create(
    app: &Admin,
    authority: &Authority,
    (tenant, agent): (TenantId, Option<AgentId>),
    new: Create,
) -> Result<impl IntoResponse + use<>, Fault> {
    let default_name = if agent.is_some() { "key" } else { "owner" };
    let new = NewKey {
        tenant,
        agent,
        name: new.name.map_or_else(|| default_name.to_owned(), Name::into),
        scopes: checked_scopes(new.scopes)?,
        labels: new.labels.unwrap_or_default(),
        // With the precision of the database.
        expires_at: new.expires_at.map(OffsetDateTime::truncate_to_microsecond),
        limits: app.settable.key(new.limits)?,
        networks: checked_networks(new.networks)?,
    };
    let (status, audited) = authority.answers(StatusCode::CREATED);
    Ok(issued(status, app.identity.create_key(new, authority.maker(), audited).await?))
}

/// A page of the keys of an agent, or of the owner keys of a tenant.
async fn list(
    app: &Admin,
    (tenant, agent): (TenantId, Option<AgentId>),
    params: &PageParams,
) -> Result<Json<Items<KeyView>>, Fault> {
    let page = params.verify(&app.cursor_signer, "keys", agent.map_or(tenant.0, |agent| agent.0))?;
    let after = page.after.parse().unwrap_or(Uuid::nil());
    let keys = app.identity.keys(tenant, agent, after, page.read()).await?;
    Ok(page.answer(keys, |key| key.uid.to_string(), KeyView::from))
}

/// Creates a key of an agent. The answer is the only one that contains it.
#[utoipa::path(
    post,
    path = "/admin/v1/agents/{agent}/keys",
    operation_id = "createAgentKey",
    tag = "Keys",
    params(("agent" = String, Path, description = "The id of the agent")),
    request_body = Create,
    responses((status = 201, description = "The key", body = KeyView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create_agent(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Input(new): Input<Create>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    Ok(create(&app, &authority, (agent.tenant, Some(agent.uid)), new).await?)
}

/// Creates an owner key of a tenant. The answer is the only one that contains it.
#[utoipa::path(
    post,
    path = "/admin/v1/tenants/{tenant}/keys",
    operation_id = "createOwnerKey",
    tag = "Keys",
    params(("tenant" = String, Path, description = "The id of the tenant")),
    request_body = Create,
    responses((status = 201, description = "The key", body = KeyView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create_owner(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    _: Params<Nothing>,
    Input(new): Input<Create>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.identity, &slug).await?;
    Ok(create(&app, &authority, (tenant.uid, None), new).await?)
}

/// Lists the keys of an agent.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/keys",
    operation_id = "listAgentKeys",
    tag = "Keys",
    params(("agent" = String, Path, description = "The id of the agent"), PageParams),
    responses((status = 200, description = "A page of keys", body = Items<KeyView>), Problems)
)]
pub(super) async fn list_agent(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    let agent = authority.agent(&app.identity, &slug).await?;
    Ok(list(&app, (agent.tenant, Some(agent.uid)), &params).await?)
}

/// Lists the owner keys of a tenant.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{tenant}/keys",
    operation_id = "listOwnerKeys",
    tag = "Keys",
    params(("tenant" = String, Path, description = "The id of the tenant"), PageParams),
    responses((status = 200, description = "A page of keys", body = Items<KeyView>), Problems)
)]
pub(super) async fn list_owner(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let tenant = authority.tenant(&app.identity, &slug).await?;
    Ok(list(&app, (tenant.uid, None), &params).await?)
}

/// Changes the limits and the labels of a key.
///
/// An owner key changes only keys whose scopes and networks it has, and adds labels only to keys that expire no later and have
/// no higher rate.
#[utoipa::path(
    patch,
    path = "/admin/v1/keys/{key}",
    operation_id = "updateKey",
    tag = "Keys",
    params(("key" = String, Path, description = "The id of the key"), Preconditions),
    request_body = Update,
    responses((status = 200, description = "The key", body = KeyView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<Update>,
) -> Answer<impl IntoResponse> {
    let key = find(&app, &authority, &id).await?;
    let limits = patch.limits.map(|limits| app.settable.key(limits)).transpose()?;
    let (status, audited) = authority.answers(StatusCode::OK);
    let change = KeyChange { limits, labels: patch.labels };
    let key = app.identity.update_key(&key, change, authority.maker(), condition, audited).await?;
    Ok((status, [(ETAG, etag(key.revision))], Json(KeyView::from(key))))
}

/// Revokes a key, optionally with the keys that it created.
#[utoipa::path(
    delete,
    path = "/admin/v1/keys/{key}",
    operation_id = "revokeKey",
    tag = "Keys",
    params(("key" = String, Path, description = "The id of the key"), Revocation, Preconditions),
    responses((status = 204, description = "The key is revoked", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn revoke(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    Params(revocation): Params<Revocation>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let key = find(&app, &authority, &id).await?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let revision = app.identity.revoke_key(&key, revocation.descendants, condition, audited).await?;
    Ok((status, [(ETAG, etag(revision))]))
}

/// Replaces a key by a new one; the old one stays valid for the grace period.
///
/// An owner key rotates only keys whose scopes and networks it has; the new key expires no later than the calling key and
/// has no higher rate. A key that has expired cannot be rotated: `404`, which says when it expired.
#[utoipa::path(
    post,
    path = "/admin/v1/keys/{key}/rotate",
    operation_id = "rotateKey",
    tag = "Keys",
    params(("key" = String, Path, description = "The id of the key"), Preconditions),
    request_body = Option<Rotate>,
    responses((status = 201, description = "The new key", body = KeyView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn rotate(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    let key = find(&app, &authority, &id).await?;
    let rotation: Rotate = optional_json(request).await?;
    let grace = rotation.grace_seconds.unwrap_or(DEFAULT_GRACE);
    if grace > LONGEST_GRACE {
        return Err(Fault::invalid_params(format!(
            "graceSeconds must be at most {LONGEST_GRACE}, thirty days"
        ))
        .into());
    }
    let (status, audited) = authority.answers(StatusCode::CREATED);
    Ok(issued(
        status,
        app.identity
            .rotate_key(&key, Duration::from_secs(grace), authority.maker(), condition, audited)
            .await?,
    ))
}

/// The key, if it exists and the caller manages it; otherwise not found.
async fn find(app: &Admin, authority: &Authority, id: &str) -> Result<ApiKey, Fault> {
    authority.owner()?;
    let uid = id.parse().map_err(|_| Fault::NotFound("key"))?;
    let key = app.identity.key(KeyId(uid)).await?;
    authority.manages(&key)?;
    Ok(key)
}
