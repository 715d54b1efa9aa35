//! Authenticates a call by its headers, and charges it to the rate limits.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::authority::{Authority, CredentialHolder};
use super::services::{Admin, App};
use crate::http::credential::Presented;
use crate::http::intake::SharedContext;
use crate::http::origin::FOREIGN_HOST;
use crate::http::problem::AdminFault;
use crate::identity::grant::PresentedCredential;
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;

impl FromRequestParts<Arc<Admin>> for Authority {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, AdminFault> {
        let call = SharedContext::of(&parts.extensions)?;
        let holder = identify(parts, admin, call).await;
        if holder.as_ref().is_err_and(|fault| fault.outcome() == Outcome::Unauthenticated) {
            admin.authenticator.charge_failure(call.client)?;
        }
        let authority = Authority::new(holder?, call);
        let services = (&admin.authenticator, &admin.queries);
        call.intake.begin_work(services, authority.grant(), admin.cost(&parts.method)).await?;
        Ok(authority)
    }
}

/// Charges a call that needs no credential to its address.
pub(super) struct Visit;

impl FromRequestParts<Arc<Admin>> for Visit {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, AdminFault> {
        let call = SharedContext::of(&parts.extensions)?;
        call.intake.charge_visit(call.client, admin.cost(&parts.method))?;
        Ok(Self)
    }
}

async fn identify(parts: &Parts, admin: &Admin, call: &SharedContext) -> Result<CredentialHolder, Fault> {
    let presented = admin.authenticator.read(&parts.headers)?;
    let presented = match &presented {
        Presented::None => return Err(Fault::Unauthenticated),
        Presented::Operator(key) => return Ok(CredentialHolder::Operator(*key)),
        Presented::Key(key) => PresentedCredential::Key(key, None),
        Presented::Token(token) => PresentedCredential::Token(token, None),
    };
    let grant = admin.authenticator.verify(presented, call.client).await?;
    let grant = grant.ok_or(Fault::Unauthenticated)?;
    call.with(|context| context.identified(Some(&grant), || admin.identity.now()));
    Ok(CredentialHolder::Key(grant))
}

/// Refuses a request with a foreign `Host` unless its credential is valid.
pub(super) async fn check_host(State(admin): App, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if SharedContext::of(&parts.extensions).is_ok_and(|call| call.with(|context| context.foreign_host)) {
        match Authority::from_request_parts(&mut parts, &admin).await {
            Ok(_) => {}
            Err(AdminFault(fault)) if fault.outcome() == Outcome::Unauthenticated => {
                return AdminFault(FOREIGN_HOST).into_response();
            }
            Err(fault) => return fault.into_response(),
        }
    }
    next.run(Request::from_parts(parts, body)).await
}
