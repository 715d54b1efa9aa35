//! The administration surface: recorded, guarded, and completed with the headers of all its responses.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use tower::ServiceExt;

use super::{Gateway, problem};
use crate::admin;
use crate::http::body::{Body, SharedBody};
use crate::http::context::announce_expiry;
use crate::http::intake::{Intake, SharedContext};
use crate::http::metadata::Protected;
use crate::http::origin::ADMIN_CORS;
use crate::http::precondition;
use crate::model::client_address::ClientAddress;
use crate::model::fault::{Fault, Outcome};

impl Gateway {
    /// Answers an administration call and records it in the audit log, unless it committed its row with a change.
    pub(super) async fn administer_audited(
        &self,
        request: Request<SharedBody>,
        id: &HeaderValue,
        client: ClientAddress,
    ) -> Response<Body> {
        let intake = Intake::new(Arc::clone(&self.metrics.services.limits), Arc::clone(&self.places));
        let is_call = admin::audited::is_call(&request);
        let context = SharedContext::new(admin::audited::context(&request, id, client), intake);
        if !is_call {
            return self.administer(request, id, &context).await;
        }
        if let Err(fault) = self.recorder.audit().admit() {
            return problem(&fault, id);
        }
        let mut response = self.administer(request, id, &context).await;
        if context.has_committed() {
            self.recorder.audit().notify_outbox();
        }
        if !context.is_unrecorded(response.status()) {
            return response;
        }
        let mut context = context.snapshot();
        if let Some(outcome) = response.extensions().get::<Outcome>() {
            context.event.outcome = *outcome;
        }
        self.recorder.complete(&mut context, &mut response, |_, fault| problem(fault, id)).await;
        response
    }

    async fn administer(
        &self,
        request: Request<SharedBody>,
        id: &HeaderValue,
        context: &Arc<SharedContext>,
    ) -> Response<Body> {
        let headers = request.headers().clone();
        let manage = async |mut request: Request<SharedBody>, id: &HeaderValue, foreign_host| {
            context.with(|context| context.foreign_host = foreign_host);
            request.extensions_mut().insert(Arc::clone(context));
            self.manage(request, id).await
        };
        let mut response = self.check_origin(request, id, (true, ADMIN_CORS), manage).await;
        context.intake.announce(response.headers_mut());
        if let Some(end) = context.with(|context| context.key_expires) {
            announce_expiry(end, response.headers_mut());
        }
        self.challenge(|| Protected::Gateway, &headers, &mut response);
        // Responses hold secrets and data of tenants.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn manage(&self, request: Request<SharedBody>, id: &HeaderValue) -> Response<Body> {
        if self.is_full() {
            return problem(&Fault::BUSY, id);
        }
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let routed = self.admin.clone().oneshot(request.map(axum::body::Body::new));
        let mut response = match self.guard(routed).await {
            Ok(Ok(answered)) => admin::finish(answered, id.to_str().ok()).map(Body::Axum),
            Ok(Err(never)) => match never {},
            Err(interrupted) => problem(&interrupted.fault(), id),
        };
        if precondition::is_known(&method, &headers, response.status(), response.headers()) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_TYPE);
        }
        response
    }
}
