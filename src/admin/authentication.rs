//! From the headers of a request to its caller, charged to the rate limits.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::audited;
use super::authority::Authority;
use super::services::{Admin, App};
use crate::http::client_context::ClientContext;
use crate::http::credential::{self, Presented};
use crate::http::origin::FOREIGN_HOST;
use crate::http::problem::AdminFault;
use crate::identity::grant::PresentedCredential;
use crate::model::fault::Fault;

impl FromRequestParts<Arc<Admin>> for Authority {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, AdminFault> {
        let context = ClientContext::of(&parts.extensions)?;
        let authority = identify(parts, admin, context).await;
        if let Err(Fault::Unauthenticated) = &authority {
            admin.limits.charge_failure(context.client)?;
        }
        let authority = authority?;
        audited::identify(authority.actor());
        context.intake.begin_work(authority.grant(), admin.cost(&parts.method))?;
        Ok(authority)
    }
}

/// Charges a call that needs no credential to its address.
pub(super) struct Visit;

impl FromRequestParts<Arc<Admin>> for Visit {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, AdminFault> {
        let context = ClientContext::of(&parts.extensions)?;
        context.intake.charge_visit(context.client, admin.cost(&parts.method))?;
        Ok(Self)
    }
}

async fn identify(parts: &Parts, admin: &Admin, context: &ClientContext) -> Result<Authority, Fault> {
    let presented = credential::read(&parts.headers, &admin.operators)?;
    let presented = match &presented {
        Presented::Anonymous => return Err(Fault::Unauthenticated),
        Presented::Operator(key) => return Ok(Authority::Operator(*key)),
        Presented::Key(key) => PresentedCredential::Key(key, None),
        Presented::Token(token) => PresentedCredential::Token(token, None),
    };
    admin.limits.admit_credential(context.client, admin.identity.recognize(&presented))?;
    let grant = admin.identity.identify(presented, context.client).await?;
    context.intake.identified(grant.as_deref(), || admin.identity.now());
    Ok(Authority::Key(grant.ok_or(Fault::Unauthenticated)?))
}

/// Refuses a request with a foreign `Host` unless its credential is valid.
pub(super) async fn check_host(State(admin): App, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if parts.extensions.get::<ClientContext>().is_some_and(|context| context.foreign_host) {
        match Authority::from_request_parts(&mut parts, &admin).await {
            Ok(_) => {}
            Err(AdminFault(Fault::Unauthenticated)) => return AdminFault(FOREIGN_HOST).into_response(),
            Err(fault) => return fault.into_response(),
        }
    }
    next.run(Request::from_parts(parts, body)).await
}
