//! The administration surface: audited, guarded, and completed with the headers of all its responses.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Body as _;
use tower::ServiceExt;

use super::{Gateway, note, problem};
use crate::admin;
use crate::cache::audited::AuditedCall;
use crate::http::body::{Body, SharedBody};
use crate::http::client_context::ClientContext;
use crate::http::metadata::Protected;
use crate::http::origin::ADMIN_CORS;
use crate::http::precondition;
use crate::model::fault::Fault;
use crate::model::outcome::Outcome;

impl Gateway {
    /// Answers an administration call and records it in the audit log, unless it committed its row with a change.
    pub(super) async fn administer_audited(
        &self,
        request: Request<SharedBody>,
        id: &HeaderValue,
        context: &ClientContext,
    ) -> Response<Body> {
        let arrived = admin::audited::arrived(&request, id, context.client, self.audit.now());
        let Some(event) = arrived else {
            return self.administer(request, id, context).await;
        };
        if let Err(fault) = self.audit.admit() {
            return problem(&fault, id);
        }
        let call = AuditedCall::new(event);
        let response = call.run(self.administer(request, id, context)).await;
        let Some(mut event) = call.unwritten() else {
            self.audit.notify_outbox();
            return response;
        };
        let status = response.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            event.outcome = Outcome::MethodNotAllowed;
        }
        event.at = self.audit.now();
        event.status = Some(status.as_u16());
        event.bytes_out = response.body().size_hint().exact();
        match self.audit.record(&event).await {
            Ok(()) => response,
            Err(fault) => problem(&fault, id),
        }
    }

    async fn administer(
        &self,
        request: Request<SharedBody>,
        id: &HeaderValue,
        context: &ClientContext,
    ) -> Response<Body> {
        let headers = request.headers().clone();
        let manage = async |mut request: Request<SharedBody>, id: &HeaderValue, foreign_host| {
            request.extensions_mut().insert(ClientContext { foreign_host, ..context.clone() });
            self.manage(request, id).await
        };
        let mut response = self.check_origin(request, id, (true, ADMIN_CORS), manage).await;
        context.intake.announce(response.headers_mut());
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
            Ok(Ok(answered)) => {
                if let Some(fault) = answered.extensions().get::<Fault>() {
                    note(fault);
                }
                admin::finish(answered, id.to_str().ok()).map(Body::Axum)
            }
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
