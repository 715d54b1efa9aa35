//! Answers the requests to an endpoint, in both eras: a `POST` from the admission of its caller to its answer. `GET` and
//! `DELETE` are those of a session.

use std::pin::pin;
use std::sync::Arc;

use http::{Method, Response};
use hyper::body::{Body as HttpBody, Incoming as IncomingBody};

use super::endpoint::Endpoint;
use super::reply::{Reply, fail, refuse, refuse_read};
use super::request::{McpRequest, calls_of, label_of};
use super::version::{ProtocolVersion, RequestEra, VersionSource};
use super::wire::{MessageBody, Rejected, parse};
use crate::http::body::{self, Body, Received};
use crate::http::credential::Presented;
use crate::http::media_type;
use crate::http::origin::FOREIGN_HOST;
use crate::http::refusals;
use crate::identity::grant::{Caller, PresentedCredential};
use crate::model::audit::event::{Actor, Outcome};
use crate::model::fault::Fault;
use crate::model::method::Era;
use crate::quota::limits::{Admission, WorkPermit};
use crate::telemetry::trace::{Kind, traced};

impl Endpoint {
    /// Answers a request of any method of HTTP. One that was refused before the endpoint is refused as a `POST` is.
    pub async fn answer(&self, request: &mut McpRequest<'_>, body: &mut IncomingBody) -> Response<Body> {
        if request.parts.method != Method::POST && request.prior_checks.is_ok() {
            return Box::pin(self.without_message(request, body)).await;
        }
        let caller = match self.admit_message(request).await {
            Ok(caller) => caller,
            Err(fault) => return Box::pin(refuse(request, &fault, body)).await,
        };
        let admission = match self.authenticator.limits().admit(&(&*caller).into(), request.client()) {
            Ok(admission) => admission,
            Err(fault) => return Box::pin(refuse(request, &fault, body)).await,
        };
        if let Err(fault) = self.check_allowance(&caller, &admission) {
            return Box::pin(self.refuse_caller(request, (&caller, &admission), &fault, body)).await;
        }
        request.awaits_body = true;
        let reserve = |bytes| admission.reserve(bytes);
        let other = self.options.costs.other();
        // If the deadline of the request drops this future before the body has arrived, it costs what a body costs that is too
        // slow.
        let charge_if_dropped = scopeguard::guard((), |()| _ = admission.charge(other));
        let received =
            body::read(body, self.options.body_bytes, self.authenticator.limits().pace(), reserve).await;
        scopeguard::ScopeGuard::into_inner(charge_if_dropped);
        match received {
            Ok(Received { bytes, mut reserved }) => {
                request.body(&bytes);
                let mut caller = caller;
                if let Some(reserved) = &mut reserved {
                    reserved.shrink_to(bytes.len());
                    // The body took its time, in which the key may have been revoked or memory outdated.
                    match Box::pin(self.admit(request)).await {
                        Ok(now) => caller = now,
                        Err(fault) => return refuse_read(request, &fault, &bytes),
                    }
                }
                self.work(request, &caller, &admission, &bytes).await
            }
            Err(fault @ Fault::Unavailable { .. }) => Box::pin(refuse(request, &fault, body)).await,
            // Too long, too slow or broken off.
            Err(fault) => match admission.charge(other) {
                Ok(status) => {
                    request.rate_limit = status;
                    match fault {
                        // Nothing was read of a body that declares too great a length.
                        Fault::PayloadTooLarge(_) if body.size_hint().exact().is_some() => {
                            Box::pin(refuse(request, &fault, body)).await
                        }
                        fault => fail(request, &fault),
                    }
                }
                Err(fault) => fail(request, &fault),
            },
        }
    }

    /// The caller of a message, which must be JSON. Another content type is charged to the caller.
    async fn admit_message(&self, request: &mut McpRequest<'_>) -> Result<Arc<Caller>, Fault> {
        let caller = self.admit(request).await?;
        if !request.headers.declares_usual
            && let Err(fault) = media_type::check_json(&request.parts.headers)
        {
            let admission = self.authenticator.limits().admit(&(&*caller).into(), request.client())?;
            request.rate_limit = admission.charge(self.options.costs.other())?;
            return Err(fault);
        }
        Ok(caller)
    }

    /// The caller, if it may use the agent. An invalid credential is charged to its address.
    pub(super) async fn admit(&self, request: &mut McpRequest<'_>) -> Result<Arc<Caller>, Fault> {
        request.prior_checks.clone()?;
        self.recorder.audit().check_available()?;
        let admitted = traced("access", Kind::Internal, pin!(self.identify(request))).await;
        if let Err(fault) = &admitted
            && (fault.outcome() == Outcome::Unauthenticated || *fault == Fault::Forbidden)
        {
            self.authenticator.charge_failure(request.client())?;
        }
        match admitted {
            Err(fault) if request.context.foreign_host && fault.outcome() == Outcome::Unauthenticated => {
                Err(FOREIGN_HOST)
            }
            admitted => admitted.inspect(|caller| request.admitted(caller)),
        }
    }

    /// The caller that the credential of the request makes, from memory if it was admitted to the agent before.
    async fn identify(&self, request: &mut McpRequest<'_>) -> Result<Arc<Caller>, Fault> {
        let identity = self.authenticator.identity();
        let presented = self.authenticator.read(&request.parts.headers)?;
        let presented = match &presented {
            Presented::Operator(key) => {
                request.context.event.actor = Actor::operator(*key);
                return Err(Fault::Forbidden);
            }
            Presented::None => {
                request.context.event.actor = Actor::anybody();
                if request.context.foreign_host {
                    return Err(FOREIGN_HOST);
                }
                PresentedCredential::None
            }
            Presented::Key(key) => {
                let asked = (key.hash(), &*request.agent);
                let known = identity.admit_from_memory(asked, request.client()).await?;
                if let Some(caller) = known {
                    request.context.identified(caller.grant.as_deref(), || identity.now());
                    return Ok(caller);
                }
                PresentedCredential::Key(key, Some(&*request.agent))
            }
            Presented::Token(token) => PresentedCredential::Token(token, Some(&*request.agent)),
        };
        let grant = self.authenticator.verify(presented, request.client()).await?;
        request.context.identified(grant.as_deref(), || identity.now());
        let admitted = identity.admit(grant.clone(), request.client(), &request.agent).await;
        if let (Err(Fault::InsufficientScope(_) | Fault::AgentDisabled), Some(grant)) = (&admitted, &grant) {
            let costs = &self.options.costs;
            request.rate_limit =
                self.authenticator.limits().charge_refused(&grant.credential, costs.other())?;
        }
        admitted.map(Arc::new)
    }

    /// Refuses a caller that has exhausted its rate or quota before the body is read, regardless of the method that its headers name.
    fn check_allowance(&self, caller: &Caller, admission: &Admission<'_>) -> Result<(), Fault> {
        self.options.costs.least.map_or(Ok(()), |least| admission.check(least))?;
        self.recorder.usage().check(caller.into())
    }

    /// Refuses a caller that has exhausted its rate or quota, unless the request in its short body is free of charge.
    async fn refuse_caller(
        &self,
        request: &mut McpRequest<'_>,
        (caller, admission): (&Caller, &Admission<'_>),
        fault: &Fault,
        body: &mut IncomingBody,
    ) -> Response<Body> {
        if self.authenticator.limits().is_barred(request.client()) {
            return fail(request, fault);
        }
        let read = refusals::read_short(body, |bytes| admission.reserve(bytes)).await;
        let Some(Received { bytes, reserved: _reserved }) = read else { return fail(request, fault) };
        request.body(&bytes);
        let incoming = parse(&bytes);
        let era = RequestEra::decide(&request.headers, &incoming);
        request.classified(label_of(incoming.as_ref()), era.era());
        let free = match fault {
            Fault::RateLimited { .. } => self.options.costs.of(era.era(), &incoming) == 0,
            _ => incoming.as_ref().is_ok_and(|incoming| calls_of(era.era(), incoming) == 0),
        };
        if free { self.work(request, caller, admission, &bytes).await } else { fail(request, fault) }
    }

    /// Answers a body that is read, if there is capacity for the work.
    async fn work(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        match Self::begin_work(request, admission) {
            Ok(_working) => {
                let response = self.dispatch(request, caller, admission, body).await;
                request.work.release();
                response
            }
            Err(fault) => refuse_read(request, &fault, body),
        }
    }

    /// Takes a permit among the requests in flight of the replica, and of the agent.
    pub(super) fn begin_work<'a>(
        request: &McpRequest<'_>,
        admission: &'a Admission<'_>,
    ) -> Result<WorkPermit<'a>, Fault> {
        request.work.hold(request.permits.try_acquire().map_err(|_| Fault::BUSY)?);
        admission.begin_work()
    }

    /// Answers the body of an admitted caller, in the dialect of its era.
    async fn dispatch(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        let headers = std::mem::take(&mut request.headers);
        let incoming = parse(body);
        let era = RequestEra::decide(&headers, &incoming);
        let version = headers.named_version(&incoming);
        request.classified(label_of(incoming.as_ref()), era.era());
        if let Ok(incoming) = &incoming {
            request.read(incoming, named_or(version, era));
        }
        let charged = self.charge(request, caller, admission, (era.era(), &incoming)).await;
        let id = incoming.as_ref().map_or_else(|rejected| rejected.id, MessageBody::id);
        let version = match (&incoming, &charged, era) {
            // A body that cannot be read is answered in the revision of its session.
            (Err(_), Ok(()), RequestEra::Legacy(VersionSource::Session)) => {
                let session = Box::pin(self.session(caller, &headers, request)).await.ok();
                session.and_then(|session| ProtocolVersion::parse(&session.version)).or(version)
            }
            _ => version,
        };
        let reply = Reply { era, version, id };
        let accepted = if headers.accepts_usual {
            Ok(())
        } else {
            media_type::check_accept(&request.parts.headers).or_else(|fault| match &incoming {
                Ok(incoming) if !incoming.is_answered() => Ok(()),
                _ => Err(fault),
            })
        };
        let response = match (&incoming, charged.as_ref().and(accepted.as_ref())) {
            (_, Err(fault)) => reply.fault(request, fault),
            (Err(rejected), Ok(())) => reply.fault(request, &rejected.fault),
            (Ok(incoming), Ok(())) => match era {
                RequestEra::Modern => self.answer_modern(request, caller, &headers, incoming, &reply).await,
                RequestEra::Legacy(source) => {
                    self.answer_legacy(request, (caller, &headers, source), incoming, reply).await
                }
            },
        };
        request.context.event.connection = request.work.take_connection();
        response
    }

    /// Charges a body to the rates and the quotas of its caller.
    async fn charge(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        (era, incoming): (Era, &Result<MessageBody<'_>, Rejected<'_>>),
    ) -> Result<(), Fault> {
        request.rate_limit = admission.charge(self.options.costs.of(era, incoming))?;
        if let Ok(incoming) = incoming {
            self.recorder.usage().take_calls(caller.into(), calls_of(era, incoming)).await?;
        }
        Ok(())
    }
}

/// The revision that a request names or, without a session, is assumed to be in.
fn named_or(named: Option<ProtocolVersion>, era: RequestEra) -> Option<ProtocolVersion> {
    match era {
        RequestEra::Legacy(VersionSource::Sessionless(version)) => Some(version),
        _ => named,
    }
}
