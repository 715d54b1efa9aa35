//! `/{agent_id}/mcp`: authentication and admission. The body is answered by `dispatch`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response};
use hyper::body::{Body as HttpBody, Incoming as IncomingBody};
use tokio_util::sync::CancellationToken;

use super::call_handler::CallHandler;
use super::era::{self, McpHeaders};
use super::reply::{fail, method_not_allowed, no_content, refuse, refuse_read};
use super::request::{McpRequest, RequestCosts, calls_of, label_of};
pub use super::streams::StreamStats;
use super::streams::Streams;
use super::wire::parse;
use crate::cache::MemoryBudget;
use crate::catalog::Catalog;
use crate::feed::{Feed, FeedStats};
use crate::http::body::{self, Body, Received};
use crate::http::context::MethodLabel;
use crate::http::credential::{Authenticator, Presented};
use crate::http::cursor::CursorSigner;
use crate::http::media_type;
use crate::http::origin::FOREIGN_HOST;
use crate::http::recorder::RequestRecorder;
use crate::http::refusals;
use crate::identity::grant::{Caller, PresentedCredential};
use crate::model::audit::event::{Actor, Outcome};
use crate::model::fault::Fault;
use crate::model::method::{CostClass, Era};
use crate::model::session::{Session, SessionId};
use crate::quota::limits::{Admission, WorkPermit};
use crate::sessions::Sessions;
use crate::telemetry::trace::{Kind, Tracer, traced};

/// The bounds of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The maximum length of a body.
    pub body_bytes: usize,
    /// Bytes of the answers to a batch, beyond which its further calls are refused.
    pub batch_answer_bytes: usize,
    /// The maximum length of the text, or of the data, of one result of a tool.
    pub tool_result_bytes: usize,
    /// How long a modern client may cache a result.
    pub ttl: Duration,
    /// The interval of keep-alive comments and access checks of a stream.
    pub keep_alive: Duration,
    /// The maximum number of streams of one key, and of one address without a key.
    pub streams_per_key: usize,
    /// The maximum number of streams of the replica.
    pub streams: usize,
    /// The maximum number of URIs that one stream subscribes to.
    pub uris_per_stream: usize,
    /// The costs of requests, in rate limit units.
    pub costs: RequestCosts,
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) call_handler: CallHandler,
    pub(super) cursor_signer: CursorSigner,
    pub(super) authenticator: Authenticator,
    pub(super) catalog: Arc<Catalog>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Streams,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) tracer: Option<Arc<Tracer>>,
    pub(super) options: EndpointOptions,
}

/// The services that the endpoints use.
#[derive(Debug)]
pub struct Services {
    /// Resources, resource templates and prompts.
    pub catalog: Arc<Catalog>,
    /// Sessions of the legacy era.
    pub sessions: Arc<Sessions>,
    /// The change feed.
    pub feed: Arc<Feed>,
    /// The audit log, quotas and usage, and the metrics of requests.
    pub recorder: Arc<RequestRecorder>,
    /// The memory of all caches.
    pub budget: Arc<MemoryBudget>,
    /// Traces, if they are exported.
    pub tracer: Option<Arc<Tracer>>,
}

impl Endpoint {
    /// Creates the endpoints. After cancelling `closing`, call [`Feed::recheck_streams`], which ends the streams.
    pub fn new(
        services: Services,
        (cursor_signer, authenticator): (CursorSigner, Authenticator),
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let Services { catalog, sessions, feed, recorder, budget, tracer } = services;
        let streams = Streams::new(options.streams_per_key, options.streams, closing);
        let (tool_bytes, ttl) = (options.tool_result_bytes, options.ttl);
        let call_handler =
            CallHandler::new(Arc::clone(&catalog), cursor_signer.clone(), &budget, tool_bytes, ttl);
        Self {
            call_handler,
            cursor_signer,
            authenticator,
            catalog,
            sessions,
            feed,
            streams,
            recorder,
            tracer,
            options,
        }
    }

    /// The counters of the streams of both eras.
    pub fn stream_stats(&self) -> [StreamStats; 2] {
        self.streams.stats()
    }

    /// The counters of the change feed.
    pub fn feed_stats(&self) -> FeedStats {
        self.feed.stats()
    }

    /// Answers a request.
    pub async fn answer(&self, request: &mut McpRequest<'_>, body: &mut IncomingBody) -> Response<Body> {
        if request.parts.method != Method::POST && request.admitted.is_ok() {
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
        // A body that has not arrived when the time of the request is over, which drops this future, costs as one that is too
        // slow does.
        let unpaid = scopeguard::guard((), |()| _ = admission.charge(other));
        let received =
            body::read(body, self.options.body_bytes, self.authenticator.limits().pace(), reserve).await;
        scopeguard::ScopeGuard::into_inner(unpaid);
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
                        // Nothing is read yet of one that declares its length.
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

    fn begin_work<'a>(
        request: &McpRequest<'_>,
        admission: &'a Admission<'_>,
    ) -> Result<WorkPermit<'a>, Fault> {
        request.work.hold(request.permits.try_acquire().map_err(|_| Fault::BUSY)?);
        admission.begin_work()
    }

    /// Refuses a caller that has exhausted its rate or quota before the body is read, whatever its headers name.
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
        let era = era::decide(&request.headers, &incoming);
        request.classified(label_of(incoming.as_ref()), era.era());
        let free = match fault {
            Fault::RateLimited { .. } => self.options.costs.of(era.era(), &incoming) == 0,
            _ => incoming.as_ref().is_ok_and(|incoming| calls_of(era.era(), incoming) == 0),
        };
        if free { self.work(request, caller, admission, &bytes).await } else { fail(request, fault) }
    }

    /// Answers `GET` and `DELETE`, which only a session has.
    async fn without_message(&self, request: &mut McpRequest<'_>, body: &mut IncomingBody) -> Response<Body> {
        let parts = request.parts;
        let headers = std::mem::take(&mut request.headers);
        let era = if era::is_modern(&headers) { Era::Modern } else { Era::Legacy };
        request.classified(MethodLabel::of_http(&parts.method), era);
        if request.context.foreign_host
            && let Err(fault) = self.admit(request).await
        {
            return refuse(request, &fault, body).await;
        }
        if era == Era::Modern || !headers.session_id.is_present() {
            return self.method_not_allowed(request, "POST");
        }
        let streams = parts.method == Method::GET && media_type::wants_events(&parts.headers);
        if !streams && parts.method != Method::DELETE {
            return self.method_not_allowed(request, "GET, POST, DELETE");
        }
        match self.use_session(request, &headers, streams).await {
            Ok(response) => response,
            Err(fault) => refuse(request, &fault, body).await,
        }
    }

    /// Refuses the HTTP method, which no credential is needed for: the address is charged.
    fn method_not_allowed(&self, request: &mut McpRequest<'_>, allowed: &'static str) -> Response<Body> {
        match self.authenticator.limits().charge_visit(request.client(), self.options.costs.other()) {
            Ok(status) => {
                request.rate_limit = status;
                method_not_allowed(allowed)
            }
            Err(fault) => fail(request, &fault),
        }
    }

    /// Opens the stream of a session, or ends the session.
    async fn use_session(
        &self,
        request: &mut McpRequest<'_>,
        headers: &McpHeaders<'_>,
        streams: bool,
    ) -> Result<Response<Body>, Fault> {
        let caller = self.admit(request).await?;
        let admission = self.authenticator.limits().admit(&(&*caller).into(), request.client())?;
        let _working = Self::begin_work(request, &admission)?;
        // Charged first: a session that does not exist is looked up in the database.
        let costs = &self.options.costs;
        request.rate_limit =
            admission.charge(if streams { costs.of_class(CostClass::Stream) } else { costs.other() })?;
        let session = self.session(&caller, headers, request).await?;
        if streams {
            self.open_session_stream(request, &caller, &session).await
        } else {
            self.sessions.end(&session).await.map(|()| no_content())
        }
    }

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

    /// The session that the headers name, if it is the caller's.
    pub(super) async fn session(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        request: &mut McpRequest<'_>,
    ) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        let session = self.sessions.find(caller, &id).await?;
        request.session(&session);
        Ok(session)
    }

    /// The caller, if it may use the agent. An invalid credential is charged to its address.
    async fn admit(&self, request: &mut McpRequest<'_>) -> Result<Arc<Caller>, Fault> {
        request.admitted.clone()?;
        self.recorder.audit().admit()?;
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
}
