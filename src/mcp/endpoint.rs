//! `/{agent_id}/mcp`: authentication and admission. The body is answered by `dispatch`.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Response};
use hyper::body::Incoming as IncomingBody;
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::accept;
use super::call_handler::CallHandler;
use super::context::{Progress, RequestContext};
use super::costs;
use super::era;
use super::headers::McpHeaders;
use super::reply::{fail, method_not_allowed, no_content, refuse, refuse_read};
use super::stats::{EndpointStats, label_of};
use super::streams::Streams;
use super::wire::parse;
use crate::audit::AuditRecorder;
use crate::catalog::Catalog;
use crate::config::Costs;
use crate::feed::Feed;
use crate::http::body::{self, Body, Received};
use crate::http::credential::{self, Presented};
use crate::http::cursor::CursorSeal;
use crate::http::media_type;
use crate::http::meter::MethodLabel;
use crate::http::operator_keys::OperatorKeys;
use crate::http::origin::FOREIGN_HOST;
use crate::identity::Identity;
use crate::identity::grant::{Caller, PresentedCredential};
use crate::model::audit::event::Actor;
use crate::model::fault::Fault;
use crate::model::method::{self as mcp, Era};
use crate::model::session::{Session, SessionId};
use crate::quota::limits::{Admission, Limits, UnderWay};
use crate::quota::usage::UsageBook;
use crate::sessions::Sessions;

/// The bounds of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Most bytes of a body.
    pub body_bytes: usize,
    /// Bytes of encoded results held in memory.
    pub result_bytes: u64,
    /// How long a modern client may cache a result.
    pub ttl: Duration,
    /// The interval of keep-alive comments and access checks of a stream.
    pub keep_alive: Duration,
    /// Most streams of one key, and of one address without a key.
    pub streams_per_key: usize,
    /// Most streams of the replica.
    pub streams: usize,
    /// Most URIs that one stream subscribes to.
    pub uris_per_stream: usize,
    /// What a request takes from the rate limits.
    pub costs: Costs,
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) call_handler: CallHandler,
    pub(super) identity: Arc<Identity>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Streams,
    pub(super) audit: Arc<AuditRecorder>,
    limits: Arc<Limits>,
    pub(super) usage: Arc<UsageBook>,
    pub(super) options: EndpointOptions,
    /// Ends all streams.
    pub(super) closing: CancellationToken,
    operators: OperatorKeys,
}

/// The services that the surfaces use.
#[derive(Debug, Clone)]
pub struct Services {
    /// Credentials and access.
    pub identity: Arc<Identity>,
    /// Resources, resource templates and prompts.
    pub catalog: Arc<Catalog>,
    /// Sessions of the legacy era.
    pub sessions: Arc<Sessions>,
    /// The change feed.
    pub feed: Arc<Feed>,
    /// The audit log.
    pub audit: Arc<AuditRecorder>,
    /// Rate limits and requests in flight.
    pub limits: Arc<Limits>,
    /// Quotas and usage counters.
    pub usage: Arc<UsageBook>,
}

impl Endpoint {
    /// Creates the endpoints. Their streams end when `closing` is cancelled.
    pub fn new(
        services: Services,
        (seal, operators): (CursorSeal, OperatorKeys),
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let Services { identity, catalog, sessions, feed, audit, limits, usage } = services;
        let streams = Streams::new(options.streams_per_key, options.streams);
        let call_handler = CallHandler::new(Arc::clone(&catalog), seal, options.result_bytes);
        Self {
            call_handler,
            identity,
            catalog,
            sessions,
            feed,
            streams,
            audit,
            limits,
            usage,
            options,
            closing,
            operators,
        }
    }

    /// The sizes and counters of the endpoints.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { results: self.call_handler.results(), streams: self.streams.stats() }
    }

    /// Answers a request.
    pub async fn answer(&self, context: &mut RequestContext<'_>, body: &mut IncomingBody) -> Response<Body> {
        if context.parts.method != Method::POST && context.admitted.is_ok() {
            return Box::pin(self.without_message(context, body)).await;
        }
        let caller = match self.admit_message(context).await {
            Ok(caller) => caller,
            Err(fault) => return Box::pin(refuse(context, &fault, body)).await,
        };
        let admission = match self.limits.admit(&(&caller).into(), context.client) {
            Ok(admission) => admission,
            Err(fault) => return Box::pin(refuse(context, &fault, body)).await,
        };
        if let Err(fault) = self.check_allowance(context, &caller, &admission) {
            return Box::pin(self.refuse_caller(context, (&caller, &admission), &fault, body)).await;
        }
        context.progress.awaits_body = true;
        let reserve = |bytes| admission.reserve(bytes);
        match body::read(body, self.options.body_bytes, self.limits.pace(), reserve).await {
            Ok(Received { bytes, mut reserved }) => {
                if let Some(reserved) = &mut reserved {
                    reserved.shrink_to(bytes.len());
                }
                context.progress.body(bytes.len());
                self.work(context, &caller, &admission, &bytes).await
            }
            Err(fault @ Fault::Unavailable { .. }) => Box::pin(refuse(context, &fault, body)).await,
            Err(fault) => fail(context, &fault),
        }
    }

    /// Answers a body that is read, if there is capacity for the work.
    async fn work(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        match Self::begin_work(context, admission) {
            Ok(_working) => self.dispatch(context, caller, admission, body).await,
            Err(fault) => refuse_read(context, &fault, body),
        }
    }

    fn begin_work<'a>(
        context: &RequestContext<'a>,
        admission: &Admission<'_>,
    ) -> Result<(SemaphorePermit<'a>, UnderWay), Fault> {
        let permit = context.permits.try_acquire().map_err(|_| Fault::BUSY)?;
        Ok((permit, admission.begin_work()?))
    }

    /// Refuses a caller whose rate or quota is used up before the body is read. Discovery is never refused.
    fn check_allowance(
        &self,
        context: &RequestContext<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
    ) -> Result<(), Fault> {
        let declared = McpHeaders::read(&context.parts.headers).method.value();
        if declared == Some(mcp::Method::Discover.name()) {
            return Ok(());
        }
        self.options.costs.least().map_or(Ok(()), |least| admission.check(least))?;
        self.usage.check(caller.into())
    }

    /// Refuses a caller whose rate or quota is used up, unless the request in its short body is free of charge.
    async fn refuse_caller(
        &self,
        context: &mut RequestContext<'_>,
        (caller, admission): (&Caller, &Admission<'_>),
        fault: &Fault,
        body: &mut IncomingBody,
    ) -> Response<Body> {
        if self.limits.is_barred(context.client) {
            return fail(context, fault);
        }
        let read = context.refusals.read_short(body, |bytes| admission.reserve(bytes)).await;
        let Some(Received { bytes, reserved: _reserved }) = read else { return fail(context, fault) };
        context.progress.body(bytes.len());
        let incoming = parse(&bytes);
        let era = era::decide(&McpHeaders::read(&context.parts.headers), &incoming);
        context.progress.classified(label_of(&incoming), era.era());
        let free = match fault {
            Fault::RateLimited { .. } => costs::of(&self.options.costs, &incoming) == 0,
            _ => incoming.as_ref().is_ok_and(|incoming| costs::calls(incoming) == 0),
        };
        if free {
            self.work(context, caller, admission, &bytes).await
        } else {
            refuse_read(context, fault, &bytes)
        }
    }

    /// Answers `GET` and `DELETE`, which only a session has.
    async fn without_message(
        &self,
        context: &mut RequestContext<'_>,
        body: &mut IncomingBody,
    ) -> Response<Body> {
        let parts = context.parts;
        let headers = McpHeaders::read(&parts.headers);
        let era = if era::is_modern(&headers) { Era::Modern } else { Era::Legacy };
        context.progress.classified(MethodLabel::of_http(&parts.method), era);
        if context.foreign_host
            && let Err(fault) = self.admit(context).await
        {
            return refuse(context, &fault, body).await;
        }
        if era == Era::Modern || !headers.session_id.is_present() {
            return method_not_allowed("POST");
        }
        let streams = parts.method == Method::GET && accept::wants_events(&parts.headers);
        if !streams && parts.method != Method::DELETE {
            return method_not_allowed("GET, POST, DELETE");
        }
        match self.use_session(context, &headers, streams).await {
            Ok(response) => response,
            Err(fault) => refuse(context, &fault, body).await,
        }
    }

    /// Opens the stream of a session, or ends the session.
    async fn use_session(
        &self,
        context: &mut RequestContext<'_>,
        headers: &McpHeaders<'_>,
        streams: bool,
    ) -> Result<Response<Body>, Fault> {
        let caller = self.admit(context).await?;
        let admission = self.limits.admit(&(&caller).into(), context.client)?;
        let _working = Self::begin_work(context, &admission)?;
        let session = self.session(&caller, headers, &mut context.progress).await?;
        let costs = &self.options.costs;
        let standing = admission.charge(if streams { costs.stream } else { costs.other })?;
        let mut response = if streams {
            self.open_session_stream(context, &caller, &session).await?
        } else {
            self.sessions.end(&session).await.map(|()| no_content())?
        };
        if let Some(standing) = standing {
            standing.write(response.headers_mut());
        }
        Ok(response)
    }

    async fn admit_message(&self, context: &mut RequestContext<'_>) -> Result<Caller, Fault> {
        let caller = self.admit(context).await?;
        let headers = &context.parts.headers;
        media_type::check_json(headers)?;
        accept::check_accept(headers)?;
        Ok(caller)
    }

    /// The session that the headers name, if it is the caller's.
    pub(super) async fn session(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        progress: &mut Progress,
    ) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        let session = self.sessions.find(caller, &id).await?;
        progress.session(&session);
        Ok(session)
    }

    /// The caller, if it may use the agent. An invalid credential is charged to its address.
    async fn admit(&self, context: &mut RequestContext<'_>) -> Result<Caller, Fault> {
        context.admitted.clone()?;
        self.audit.admit()?;
        let admitted = self.identify(context).await;
        if let Err(Fault::Unauthenticated | Fault::Forbidden) = &admitted {
            self.limits.charge_failure(context.client)?;
        }
        match admitted {
            Err(Fault::Unauthenticated) if context.foreign_host => Err(FOREIGN_HOST),
            admitted => admitted.inspect(|caller| context.progress.admitted(caller)),
        }
    }

    async fn identify(&self, context: &mut RequestContext<'_>) -> Result<Caller, Fault> {
        let presented = credential::read(&context.parts.headers, &self.operators)?;
        let presented = match &presented {
            Presented::Operator(key) => {
                context.progress.actor = Actor::operator(*key);
                return Err(Fault::Forbidden);
            }
            Presented::Anonymous => {
                context.progress.actor = Actor::anybody();
                if context.foreign_host {
                    return Err(FOREIGN_HOST);
                }
                PresentedCredential::None
            }
            Presented::Key(key) => PresentedCredential::Key(key, Some(context.agent)),
            Presented::Token(token) => PresentedCredential::Token(token, Some(context.agent)),
        };
        let identity = &self.identity;
        self.limits.admit_credential(context.client, identity.recognize(&presented))?;
        let grant = identity.identify(presented, context.client).await?;
        context.progress.identified(grant.as_deref(), || identity.now());
        identity.admit(grant, context.agent).await
    }
}
