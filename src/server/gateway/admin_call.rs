//! A request to the administration API or its documentation.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::response::Response as AxumResponse;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Incoming};
use tower::ServiceExt;

use super::surfaces::SurfaceRequest;
use crate::admin;
use crate::http::body::{Body, SharedBody};
use crate::http::context::RequestContext;
use crate::http::credential::announce_expiry;
use crate::http::intake::{Intake, SharedContext};
use crate::http::metadata::Protected;
use crate::http::origin::RequestSource;
use crate::http::precondition;
use crate::model::fault::Fault;
use crate::server::compression::add_vary;

/// A request to the administration API, and its body.
pub(super) struct AdminCall {
    body: SharedBody,
    context: Arc<SharedContext>,
    /// Whether the request is recorded in the audit log: a call is, unless the log has no room for it.
    is_recorded: bool,
    refused: Option<Fault>,
}

impl AdminCall {
    pub(super) fn new(request: SurfaceRequest<'_>, body: Incoming) -> Self {
        let SurfaceRequest { surfaces, parts, id, client, .. } = request;
        let intake = Intake::new(Arc::clone(&surfaces.limits), Arc::clone(&surfaces.permits));
        let context = SharedContext::new(admin::audited::context(parts, id, client), intake);
        let is_recorded = admin::audited::is_call(parts);
        Self { body: SharedBody::new(body), context, is_recorded, refused: None }
    }

    pub(super) fn admit(
        &mut self,
        SurfaceRequest { surfaces, .. }: SurfaceRequest<'_>,
        source: Result<&RequestSource, &Fault>,
        is_full: bool,
    ) {
        self.context.with(|context| context.foreign_host = source.is_ok_and(|source| source.foreign_host));
        if self.is_recorded
            && let Err(fault) = surfaces.recorder.audit().check_available()
        {
            (self.is_recorded, self.refused) = (false, Some(fault));
            return;
        }
        self.refused = source.err().cloned().or_else(|| is_full.then_some(Fault::BUSY));
    }

    pub(super) async fn answer(&mut self, request: SurfaceRequest<'_>) -> Response<Body> {
        if let Some(fault) = &self.refused {
            return request.problem(fault);
        }
        let SurfaceRequest { surfaces, parts, id, .. } = request;
        let mut forwarded = Request::from_parts(parts.clone(), axum::body::Body::new(self.body.clone()));
        forwarded.extensions_mut().insert(Arc::clone(&self.context));
        let Ok(answered) = surfaces.admin.clone().oneshot(forwarded).await;
        self.context.intake.release_query();
        let answered = admin::finish(answered, id.to_str().ok());
        let mut response = match self.reserve(parts, answered).await {
            Ok(answered) => answered.map(Body::Axum),
            Err(fault) => return request.problem(&fault),
        };
        let (status, headers) = (response.status(), response.headers());
        let is_known = match precondition::is_known(&parts.method, &parts.headers, status, headers) {
            Ok(is_known) => is_known,
            Err(fault) => return request.problem(&fault),
        };
        if is_known {
            add_vary(parts, &mut response);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response
    }

    /// Reserves the memory of what is read, until it is sent. An answer to a write is short, and says that it succeeded.
    async fn reserve(&self, parts: &Parts, answered: AxumResponse) -> Result<AxumResponse, Fault> {
        let Some(size) = answered.body().size_hint().exact().filter(|_| parts.method == Method::GET) else {
            return Ok(answered);
        };
        let (head, body) = answered.into_parts();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let whole = to_bytes(body, size).await.map_err(|error| Fault::Internal(error.to_string()))?;
        Ok(Response::from_parts(head, self.context.intake.reserve_answer(whole)?.into()))
    }

    /// Reads the context of the request.
    pub(super) fn with_context<T>(&self, read: impl FnOnce(&RequestContext) -> T) -> T {
        self.context.with(|context| read(context))
    }

    /// Records a call, unless its row was committed with a change.
    pub(super) async fn record(&mut self, request: SurfaceRequest<'_>, response: &mut Response<Body>) {
        let recorder = &request.surfaces.recorder;
        if self.context.has_committed() {
            recorder.audit().notify_outbox();
        }
        if self.is_recorded && self.context.is_unrecorded(response.status()) {
            let refuse = |_: &mut _, fault: &Fault| request.problem(fault);
            recorder.complete(&mut self.context.snapshot(), response, refuse).await;
        }
        self.context.with(|context| context.ended(response));
    }

    pub(super) fn add_headers(
        &self,
        SurfaceRequest { surfaces, parts, .. }: SurfaceRequest<'_>,
        headers: &mut HeaderMap,
    ) {
        self.context.intake.announce(headers);
        if let Some(end) = self.context.with(|context| context.key_expires) {
            announce_expiry(end, headers);
        }
        surfaces.challenge(|| Protected::Gateway, &parts.headers, headers);
        // Responses hold secrets and data of tenants.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }

    pub(super) async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        let SurfaceRequest { surfaces, parts, client, .. } = request;
        surfaces.refusals.discard(client, &parts.headers, self.body.clone()).await;
    }
}
