//! `/{agent_id}/mcp`: who asks, and may he? What he asks is answered in `converse`.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Response};
use hyper::body::Incoming as IncomingBody;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::accept;
use super::costs;
use super::counted::{EndpointStats, label_of};
use super::era;
use super::headers::McpHeaders;
use super::performer::Performer;
use super::reply::{fail, method_not_allowed, no_content, refuse, refuse_read};
use super::streams::Streams;
use super::trail::Trail;
use super::wire::parse;
use crate::audit::Audit;
use crate::config::Costs;
use crate::feed::Feed;
use crate::http::body::{self, Body, Received};
use crate::http::credential::{self, Presented};
use crate::http::cursor::CursorSeal;
use crate::http::key_expiry::KeyExpiry;
use crate::http::limits::{Admission, Limits, UnderWay};
use crate::http::media_type;
use crate::http::meter::{MethodLabel, Noted};
use crate::http::operator_keys::OperatorKeys;
use crate::http::origin::FOREIGN_HOST;
use crate::http::refusals::Refusals;
use crate::model::audit::event::Actor;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::method::{self as mcp, Era};
use crate::model::session::{Session, SessionId};
use crate::registry::Registry;
use crate::registry::access::{Caller, Shown};
use crate::usage::UsageBook;

/// The bounds of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Most bytes of a body.
    pub body_bytes: usize,
    /// Bytes of encoded results held in memory.
    pub result_bytes: u64,
    /// For how long a modern client may take a result for fresh.
    pub ttl: Duration,
    /// How often a stream carries a comment, and is checked whether it may go on.
    pub keep_alive: Duration,
    /// Most streams of one key, and of one address without a key.
    pub streams_per_key: usize,
    /// Most streams of the replica.
    pub streams: usize,
    /// Most URIs that one stream is told of.
    pub uris_per_stream: usize,
    /// What a request takes of what one may use.
    pub costs: Costs,
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) performer: Performer,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Streams,
    pub(super) audit: Arc<Audit>,
    limits: Arc<Limits>,
    pub(super) usage: Arc<UsageBook>,
    pub(super) options: EndpointOptions,
    /// Ends all streams.
    pub(super) closing: CancellationToken,
    operators: OperatorKeys,
}

/// A request at the door.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The agent that the path names.
    pub agent: &'a str,
    /// Method and headers.
    pub parts: &'a Parts,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// Who is at the other end.
    pub client: ClientAddress,
    /// Its `Host` is not allowed, so that it needs a credential that holds.
    pub foreign_host: bool,
    /// Where it is noted that the key which it shows expires.
    pub expiry: &'a KeyExpiry,
    /// What was decided before it came here.
    pub admitted: Result<(), Fault>,
    /// Places of those that are worked on.
    pub places: &'a Semaphore,
    /// Reads the bodies of refused requests.
    pub refusals: &'a Refusals,
    /// What the audit log will say of it.
    pub trail: Trail,
    /// What it turns out to be, for those who count.
    pub noted: &'a Noted,
}

/// What the surfaces stand on.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// The use cases.
    pub registry: Arc<Registry>,
    /// What changes.
    pub feed: Arc<Feed>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// How much may be asked for.
    pub limits: Arc<Limits>,
    /// How much was.
    pub usage: Arc<UsageBook>,
}

impl Endpoint {
    /// Builds the endpoints over the registry. Their streams end with `closing`.
    pub fn new(
        grounds: Grounds,
        (seal, operators): (CursorSeal, OperatorKeys),
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let Grounds { registry, feed, audit, limits, usage } = grounds;
        let streams = Streams::new(options.streams_per_key, options.streams);
        let performer = Performer::new(registry, seal, options.result_bytes);
        Self { performer, feed, streams, audit, limits, usage, options, closing, operators }
    }

    /// What the endpoints hold, in numbers.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { results: self.performer.results(), streams: self.streams.stats() }
    }

    /// Answers a request.
    pub async fn answer(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        if arrival.parts.method != Method::POST && arrival.admitted.is_ok() {
            return Box::pin(self.without_message(arrival, body)).await;
        }
        let caller = match self.admit_message(arrival).await {
            Ok(caller) => caller,
            Err(fault) => return Box::pin(refuse(arrival, &fault, body)).await,
        };
        let admission = match self.limits.admit(&caller, arrival.client) {
            Ok(admission) => admission,
            Err(fault) => return Box::pin(refuse(arrival, &fault, body)).await,
        };
        if let Err(fault) = self.check_allowance(arrival, &caller, &admission) {
            return Box::pin(self.refuse_caller(arrival, (&caller, &admission), &fault, body)).await;
        }
        arrival.trail.await_body();
        let reserve = |bytes| admission.reserve(bytes);
        match body::read(body, self.options.body_bytes, self.limits.pace(), reserve).await {
            Ok(Received { bytes, mut reserved }) => {
                if let Some(reserved) = &mut reserved {
                    reserved.shrink_to(bytes.len());
                }
                arrival.trail.body(bytes.len());
                self.work(arrival, &caller, &admission, &bytes).await
            }
            Err(fault @ Fault::Unavailable { .. }) => Box::pin(refuse(arrival, &fault, body)).await,
            Err(fault) => fail(arrival, &fault),
        }
    }

    /// Answers a body that is there, if there is a place for the work.
    async fn work(
        &self,
        arrival: &Arrival<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        match Self::begin_work(arrival, admission) {
            Ok(_working) => self.converse(arrival, caller, admission, body).await,
            Err(fault) => refuse_read(arrival, &fault, body),
        }
    }

    fn begin_work<'a>(
        arrival: &Arrival<'a>,
        admission: &Admission<'_>,
    ) -> Result<(SemaphorePermit<'a>, UnderWay), Fault> {
        let place = arrival.places.try_acquire().map_err(|_| Fault::BUSY)?;
        Ok((place, admission.begin_work()?))
    }

    /// Refuses a caller whose rate or quota is used up before the body is read. Discovery is never refused.
    fn check_allowance(
        &self,
        arrival: &Arrival<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
    ) -> Result<(), Fault> {
        if McpHeaders::read(&arrival.parts.headers).method.value() == Some(mcp::Method::Discover.name()) {
            return Ok(());
        }
        self.options.costs.least().map_or(Ok(()), |least| admission.check(least))?;
        self.usage.check(costs::holders(caller))
    }

    /// Refuses a caller that has used up its rate or its quota, unless what its short body asks for takes nothing of it.
    async fn refuse_caller(
        &self,
        arrival: &Arrival<'_>,
        (caller, admission): (&Caller, &Admission<'_>),
        fault: &Fault,
        body: &mut IncomingBody,
    ) -> Response<Body> {
        if self.limits.is_barred(arrival.client) {
            return fail(arrival, fault);
        }
        let read = arrival.refusals.read_short(body, |bytes| admission.reserve(bytes)).await;
        let Some(Received { bytes, reserved: _reserved }) = read else { return fail(arrival, fault) };
        arrival.trail.body(bytes.len());
        let incoming = parse(&bytes);
        let era = era::decide(&McpHeaders::read(&arrival.parts.headers), &incoming);
        arrival.noted.asks(label_of(&incoming), era.era());
        let free = match fault {
            Fault::RateLimited { .. } => costs::of(&self.options.costs, &incoming) == 0,
            _ => incoming.as_ref().is_ok_and(|incoming| costs::calls(incoming) == 0),
        };
        if free {
            self.work(arrival, caller, admission, &bytes).await
        } else {
            refuse_read(arrival, fault, &bytes)
        }
    }

    /// Answers `GET` and `DELETE`, which only a session has.
    async fn without_message(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        let headers = McpHeaders::read(&arrival.parts.headers);
        let modern = era::is_modern(&headers);
        let era = if modern { Era::Modern } else { Era::Legacy };
        arrival.noted.asks(MethodLabel::of_http(&arrival.parts.method), era);
        if arrival.foreign_host
            && let Err(fault) = self.admit(arrival).await
        {
            return refuse(arrival, &fault, body).await;
        }
        if modern || !headers.session_id.is_present() {
            return method_not_allowed("POST");
        }
        let streams = arrival.parts.method == Method::GET && accept::wants_events(&arrival.parts.headers);
        if !streams && arrival.parts.method != Method::DELETE {
            return method_not_allowed("GET, POST, DELETE");
        }
        let answered = async {
            let caller = self.admit(arrival).await?;
            let admission = self.limits.admit(&caller, arrival.client)?;
            let _working = Self::begin_work(arrival, &admission)?;
            let session = self.session(&caller, &headers, &arrival.trail).await?;
            let costs = &self.options.costs;
            let standing = admission.charge(if streams { costs.stream } else { costs.other })?;
            let mut response = if streams {
                self.stream(arrival, caller, &session).await?
            } else {
                self.performer.registry().end_session(&session).await.map(|()| no_content())?
            };
            if let Some(standing) = standing {
                standing.tell(response.headers_mut());
            }
            Ok(response)
        };
        match answered.await {
            Ok(response) => response,
            Err(fault) => refuse(arrival, &fault, body).await,
        }
    }

    async fn admit_message(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        let caller = self.admit(arrival).await?;
        let headers = &arrival.parts.headers;
        media_type::check_json(headers)?;
        accept::check_accept(headers)?;
        Ok(caller)
    }

    /// The session that the headers name, if it is the caller's.
    pub(super) async fn session(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        trail: &Trail,
    ) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        let session = self.performer.registry().session(caller, &id).await?;
        trail.session(&session);
        Ok(session)
    }

    /// Who asks, if he may. A credential that does not hold is charged to its address.
    async fn admit(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        arrival.admitted.clone()?;
        self.audit.admit()?;
        let admitted = self.identify(arrival).await;
        if let Err(Fault::Unauthenticated | Fault::Forbidden) = &admitted {
            self.limits.charge_failure(arrival.client)?;
        }
        match admitted {
            Err(Fault::Unauthenticated) if arrival.foreign_host => Err(FOREIGN_HOST),
            admitted => admitted.inspect(|caller| arrival.trail.admitted(caller)),
        }
    }

    async fn identify(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        let presented = credential::read(&arrival.parts.headers, &self.operators)?;
        let shown = match &presented {
            Presented::Operator(key) => {
                arrival.trail.actor(Actor::operator(*key));
                return Err(Fault::Forbidden);
            }
            Presented::Nobody => {
                arrival.trail.actor(Actor::anybody());
                if arrival.foreign_host {
                    return Err(FOREIGN_HOST);
                }
                Shown::Nobody
            }
            Presented::Key(key) => Shown::Key(key, Some(arrival.agent)),
            Presented::Token(token) => Shown::Token(token, Some(arrival.agent)),
        };
        let registry = self.performer.registry();
        self.limits.admit_credential(arrival.client, registry.recognize(&shown))?;
        let grant = registry.identify(shown, arrival.client).await?;
        arrival.expiry.note(grant.as_deref(), || registry.now());
        arrival.trail.identified(grant.as_deref());
        registry.admit(grant, arrival.agent).await
    }
}
