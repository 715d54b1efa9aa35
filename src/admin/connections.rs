//! `/connections`, and the connections that a tenant may use.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::authority::Authority;
use super::connection_body::{ConnectionView, LastError, NewConnection, Rekeyed, Update, UsableConnection};
use super::extract::{Condition, Json as Input, Nothing, Params, Segment};
use super::malformed;
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Answer, App};
use crate::http::precondition::etag;
use crate::model::caller::Payer;
use crate::model::connection::{ConnectionLimits, StoredConnection};
use crate::model::fault::Fault;
use crate::model::ids::{Slug, TenantId};
use crate::model::place::{SourcePlace, SourceText};
use crate::sources::{self, Connection, ConnectionChange, Connections, SecretChanges, TenantNames};

/// The state of a stored connection for a tenant; without one, the worst of all.
fn state(
    stored: &StoredConnection,
    used: Option<&Arc<Connection>>,
    tenant: Option<TenantId>,
) -> &'static str {
    let unused = if stored.enabled { sources::State::Ready } else { sources::State::Disabled };
    used.map_or(unused, |used| used.state(tenant)).as_str()
}

/// What this replica knows of the use of a connection as it is stored.
fn in_use(connections: &Connections, stored: &StoredConnection) -> Option<Arc<Connection>> {
    connections.in_memory(stored.uid).filter(|used| used.revision == stored.revision)
}

fn view(connections: &Connections, stored: StoredConnection) -> ConnectionView {
    let used = in_use(connections, &stored);
    ConnectionView {
        state: state(&stored, used.as_ref(), None),
        last_error: used.and_then(|used| used.last_failure()).map(LastError::from),
        id: stored.slug,
        kind: stored.kind,
        tenants: stored.tenants.into(),
        settings: stored.settings,
        secrets: stored.secrets.into_iter().map(|(name, secret)| (name, secret.into())).collect(),
        limits: stored.limits,
        enabled: stored.enabled,
        created_at: stored.created_at,
    }
}

/// Creates a connection.
#[utoipa::path(
    post,
    path = "/admin/v1/connections",
    operation_id = "createConnection",
    tag = "Connections",
    request_body = NewConnection,
    responses((status = 201, description = "The connection", body = ConnectionView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
    Input(new): Input<NewConnection>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let new = sources::NewConnection {
        slug: Slug::parse(&new.id).map_err(|error| Fault::invalid_params(format!("id {error}")))?,
        kind: new.kind,
        tenants: new.tenants.into(),
        settings: new.settings,
        secrets: SecretChanges(new.secrets.0),
        limits: new.limits.apply_to(ConnectionLimits::default())?,
        enabled: new.enabled,
    };
    let (status, audited) = authority.answers(StatusCode::CREATED);
    let stored = app.connections.create(new, audited).await?;
    Ok((status, [(ETAG, etag(stored.revision))], Json(view(&app.connections, stored))))
}

/// Lists connections.
#[utoipa::path(
    get,
    path = "/admin/v1/connections",
    operation_id = "listConnections",
    tag = "Connections",
    params(PageParams),
    responses((status = 200, description = "A page of connections", body = Items<ConnectionView>), Problems)
)]
pub(super) async fn list(
    State(app): App,
    authority: Authority,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let page = params.verify(&app.cursor_signer, "connections", Uuid::nil())?;
    let stored = app.connections.list(None, &page.after, page.read()).await?;
    Ok(page.answer(stored, |stored| stored.slug.to_string(), |stored| view(&app.connections, stored)))
}

/// Reads a connection.
#[utoipa::path(
    get,
    path = "/admin/v1/connections/{connection}",
    operation_id = "readConnection",
    tag = "Connections",
    params(("connection" = String, Path, description = "The id of the connection")),
    responses((status = 200, description = "The connection", body = ConnectionView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let stored = app.connections.stored(&id).await?;
    Ok(([(ETAG, etag(stored.revision))], Json(view(&app.connections, stored))))
}

/// Changes a connection.
#[utoipa::path(
    patch,
    path = "/admin/v1/connections/{connection}",
    operation_id = "updateConnection",
    tag = "Connections",
    params(("connection" = String, Path, description = "The id of the connection"), Preconditions),
    request_body = Update,
    responses((status = 200, description = "The connection", body = ConnectionView, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn update(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    Input(patch): Input<Update>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let slug = app.connections.stored(&id).await?.slug;
    let change = ConnectionChange {
        tenants: patch.tenants.map(TenantNames::from),
        settings: patch.settings,
        secrets: SecretChanges(patch.secrets.0),
        limits: patch.limits,
        enabled: patch.enabled,
    };
    let (status, audited) = authority.answers(StatusCode::OK);
    let stored = app.connections.update(slug, change, condition, audited).await?;
    Ok((status, [(ETAG, etag(stored.revision))], Json(view(&app.connections, stored))))
}

/// Deletes a connection with its secrets.
#[utoipa::path(
    delete,
    path = "/admin/v1/connections/{connection}",
    operation_id = "deleteConnection",
    tag = "Connections",
    params(("connection" = String, Path, description = "The id of the connection"), Preconditions),
    responses((status = 204, description = "Deleted", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let slug = app.connections.stored(&id).await?.slug;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let written = app.connections.delete(slug, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}

/// Lists the connections that a tenant may use.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{tenant}/connections",
    operation_id = "listTenantConnections",
    tag = "Connections",
    params(("tenant" = String, Path, description = "The id of the tenant"), PageParams),
    responses((status = 200, description = "A page of connections", body = Items<UsableConnection>), Problems)
)]
pub(super) async fn list_of_tenant(
    State(app): App,
    authority: Authority,
    Segment(slug): Segment,
    Params(params): Params<PageParams>,
) -> Answer<impl IntoResponse> {
    let tenant = authority.tenant(&app.identity, &slug).await?.uid;
    let page = params.verify(&app.cursor_signer, "connections", tenant.0)?;
    let stored = app.connections.list(Some(tenant), &page.after, page.read()).await?;
    let usable = |stored: StoredConnection| UsableConnection {
        state: state(&stored, in_use(&app.connections, &stored).as_ref(), Some(tenant)),
        id: stored.slug,
        kind: stored.kind,
    };
    Ok(page.answer(stored, |stored| stored.slug.to_string(), usable))
}

/// What is fetched to test a connection.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionTest {
    /// As the source of a resource; the connection may be left out.
    #[schema(value_type = SourceText)]
    source: Map<String, Value>,
}

/// How a fetch went.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Tested {
    /// It succeeded.
    Fetched {
        /// Always true.
        ok: bool,
        /// How long it took, in milliseconds.
        millis: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// It failed.
    Failed {
        /// Always false.
        ok: bool,
        /// Why, as in `data.reason` of a failed read; `not_found` and `timeout` besides.
        reason: &'static str,
    },
}

/// Fetches content as a read would, and answers with the duration and size, or with the reason of the failure.
#[utoipa::path(
    post,
    path = "/admin/v1/connections/{connection}/test",
    operation_id = "testConnection",
    tag = "Connections",
    params(("connection" = String, Path, description = "The id of the connection")),
    request_body = ConnectionTest,
    responses((status = 200, description = "How the fetch went", body = Tested), WriteProblems)
)]
pub(super) async fn test(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Input(ConnectionTest { mut source }): Input<ConnectionTest>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let stored = app.connections.stored(&id).await?;
    source.entry("connection").or_insert_with(|| Value::from(stored.slug.as_str()));
    let text: SourceText = serde_path_to_error::deserialize(Value::Object(source))
        .map_err(|found| malformed::within("source", found))?;
    let place = SourcePlace::new(text)?;
    if *place.connection() != stored.slug {
        return Err(Fault::invalid_params("source.connection: expected the connection that is tested").into());
    }
    let wrong = |error| Fault::invalid_params(format!("source.{error}"));
    place.place().check_kind(stored.kind).map_err(wrong)?;
    let location = place.locate(&[]).filter(|_| place.place().variables().is_empty());
    let location = location.ok_or(Fault::invalid_params("source: a test has no values for variables"))?;
    let found = app.connections.get(Payer::Gateway, stored.uid).await?;
    let connection = found.ok_or(Fault::NotFound("connection"))?;
    authority.call().with(|context| context.event.connection = Some(stored.slug.clone()));
    authority.call().intake.release_query();
    let began = Instant::now();
    let fetched = app.catalog.fetcher().probe(&connection, location).await;
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Json(match fetched {
        Ok(bytes) => Tested::Fetched { ok: true, millis, bytes },
        Err(error) => Tested::Failed { ok: false, reason: error.as_str() },
    }))
}

/// Encrypts the secrets of all connections under the first key of `sources.key_file`.
#[utoipa::path(
    post,
    path = "/admin/v1/connection-secrets/rekey",
    operation_id = "rekeyConnections",
    tag = "Connections",
    responses((status = 200, description = "What was encrypted again", body = Rekeyed), WriteProblems)
)]
pub(super) async fn rekey(
    State(app): App,
    authority: Authority,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    authority.operator()?;
    let (status, audited) = authority.answers(StatusCode::OK);
    let (secrets, key_id) = app.connections.rekey(audited).await?;
    Ok((status, Json(Rekeyed { secrets, key_id })))
}
