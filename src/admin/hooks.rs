//! `/agents/{agent}/hooks`, `/hooks/{hook}`, and the requests that hooks receive.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use http::header::ETAG;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::authentication::Visit;
use super::authority::Authority;
use super::definitions::CatalogCall;
use super::extract::{Condition, Json as Input, Nothing, Params, Segment, bytes};
use super::openapi::{Preconditions, Problems, WriteProblems};
use super::page::{Items, PageParams};
use super::services::{Admin, Answer, App};
use crate::http::intake::SharedContext;
use crate::http::precondition::etag;
use crate::http::problem::AdminFault;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::hook::{Hook, HookSubject};
use crate::model::ids::{AgentRef, HookId, ResourceUri, Slug};
use crate::sources::Delivery;

/// The maximum size of a request to a hook.
const MAX_BYTES: usize = 64 << 10;

/// A new hook: of resources, or of a mount.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewHook {
    /// The URIs of the resources that count as changed by a request to the hook.
    #[schema(min_items = 1, max_items = 100)]
    uris: Option<Vec<String>>,
    /// The name of the mount that a request to the hook scans at once, in place of `uris`.
    mount: Option<String>,
}

impl NewHook {
    fn check(self) -> Result<HookSubject, Fault> {
        let parse = |(at, uri): (usize, &String)| {
            ResourceUri::parse(uri).map_err(|error| Fault::invalid_params(format!("uris[{at}] {error}")))
        };
        match (self.uris, self.mount) {
            (Some(uris), None) => {
                Ok(HookSubject::Resources(uris.iter().enumerate().map(parse).collect::<Result<_, _>>()?))
            }
            (None, Some(name)) => {
                let name = Slug::parse(&name);
                Ok(HookSubject::Mount(name.map_err(|error| Fault::invalid_params(format!("mount {error}")))?))
            }
            _ => Err(Fault::invalid_params("expected one of uris and mount")),
        }
    }
}

/// A hook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hook)]
#[serde(rename_all = "camelCase")]
pub(super) struct HookView {
    #[schema(value_type = Uuid)]
    id: HookId,
    /// The URIs of the resources that count as changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    uris: Option<Vec<ResourceUri>>,
    /// The name of the mount that is scanned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    mount: Option<Slug>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Hook> for HookView {
    fn from(hook: Hook) -> Self {
        let (uris, mount) = match hook.subject {
            HookSubject::Resources(uris) => (Some(uris), None),
            HookSubject::Mount(name) => (None, Some(name)),
        };
        Self { id: hook.uid, uris, mount, created_at: hook.created_at }
    }
}

/// A hook with its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CreatedHook {
    #[serde(flatten)]
    hook: HookView,
    /// The secret that requests are signed with as Standard Webhooks says. It is not shown again.
    secret: String,
}

/// Creates a hook.
#[utoipa::path(
    post,
    path = "/admin/v1/agents/{agent}/hooks",
    operation_id = "createHook",
    tag = "Hooks",
    params(("agent" = String, Path, description = "The id of the agent")),
    request_body = NewHook,
    responses((status = 201, description = "The hook with its secret", body = CreatedHook, headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn create(
    call: CatalogCall,
    _: Params<Nothing>,
    Input(new): Input<NewHook>,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let subject = new.check()?;
    let (status, audited) = call.authority.answers(StatusCode::CREATED);
    let (hook, secret) = call.app.connections.create_hook(AgentRef::from(&agent), subject, audited).await?;
    Ok((status, [(ETAG, etag(hook.revision))], Json(CreatedHook { hook: hook.into(), secret })))
}

/// Lists the hooks of an agent.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/hooks",
    operation_id = "listHooks",
    tag = "Hooks",
    params(("agent" = String, Path, description = "The id of the agent"), PageParams),
    responses((status = 200, description = "A page of hooks", body = Items<HookView>), Problems)
)]
pub(super) async fn list(call: CatalogCall, Params(params): Params<PageParams>) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let page = params.verify(&call.app.cursor_signer, "hooks", agent.uid.0)?;
    let after = page.after.parse().unwrap_or_default();
    let hooks = call.app.connections.hooks(AgentRef::from(&agent), after, page.read()).await?;
    Ok(page.answer(hooks, |hook| hook.uid.to_string(), HookView::from))
}

/// Deletes a hook.
#[utoipa::path(
    delete,
    path = "/admin/v1/hooks/{hook}",
    operation_id = "deleteHook",
    tag = "Hooks",
    params(("hook" = Uuid, Path, description = "The id of the hook"), Preconditions),
    responses((status = 204, description = "Deleted", headers(("ETag" = String, description = "The revision that last changed it"))), WriteProblems)
)]
pub(super) async fn remove(
    State(app): App,
    authority: Authority,
    Segment(id): Segment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    let (hook, agent) = app.connections.hook(&id).await?;
    let managed = authority.catalog_of(&app.identity, &agent).await;
    managed.map_err(|fault| if fault == Fault::NO_AGENT { Fault::NotFound("hook") } else { fault })?;
    let (status, audited) = authority.answers(StatusCode::NO_CONTENT);
    let written = app.connections.delete_hook(hook, condition, audited).await?;
    Ok((status, [(ETAG, etag(written.revision))]))
}

/// The route of requests to hooks, which need no credential but a signature.
pub(super) fn received() -> Router<Arc<Admin>> {
    Router::new().route("/hooks/{hook}", post(receive))
}

/// An id that is not UTF-8 is one that no hook has.
async fn receive(
    State(app): App,
    _: Visit,
    id: Result<Segment, AdminFault>,
    request: Request,
) -> Answer<StatusCode> {
    let call = Arc::clone(SharedContext::of(request.extensions())?);
    let id = id.map(|Segment(id)| id).unwrap_or_default();
    let delivery = verify(&app, call.client, &id, request).await;
    if let Err(Fault::Unauthenticated) = delivery {
        app.authenticator.charge_failure(call.client)?;
    }
    let delivery = delivery?;
    app.authenticator.charge_delivery(delivery.tenant(), delivery.cost(app.costs.admin_write))?;
    call.intake.acquire_work_permit()?;
    let accepted = StatusCode::ACCEPTED;
    let audited = AuditedWrite::new(Arc::clone(&call) as Arc<_>, accepted.as_u16(), accepted.as_u16());
    app.connections.receive(delivery, audited).await?;
    Ok(accepted)
}

/// Verifies a request to a hook: first what costs least.
async fn verify(app: &Admin, client: ClientAddress, id: &str, request: Request) -> Result<Delivery, Fault> {
    app.authenticator.admit_unverified(client)?;
    let signed = app.connections.signature(request.headers())?;
    let body = bytes(request, MAX_BYTES).await?;
    app.connections.verify(id, signed, &body, Payer::from(client)).await
}
