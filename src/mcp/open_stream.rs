//! Opens the streams of both eras: `subscriptions/listen`, and `GET` in a session with resume by `Last-Event-ID`.

use std::sync::Arc;

use http::{HeaderName, Response};

use super::endpoint::Endpoint;
use super::event_stream::{self, StreamContext};
use super::event_trace::EventTrace;
use super::legacy::event_id::EventIds;
use super::legacy::stream::{SessionEncoder, Start};
use super::modern::listen::{Filter, ListenEncoder};
use super::request::McpRequest;
use super::sse;
use super::stream_audit::StreamAuditGuard;
use super::version::ProtocolVersion;
use super::wire::RequestId;
use crate::feed::hub::Subscription;
use crate::http::body::Body;
use crate::http::media_type;
use crate::identity::grant::Caller;
use crate::model::fault::Fault;
use crate::model::ids::SessionUid;
use crate::model::scope::Scope;
use crate::model::session::Session;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl Endpoint {
    /// Answers `subscriptions/listen` with a stream.
    pub(super) async fn listen(
        &self,
        request: &McpRequest<'_>,
        caller: &Caller,
        filter: &Filter,
        id: RequestId<'_>,
    ) -> Result<Response<Body>, Fault> {
        if !media_type::admits_events(&request.parts.headers) {
            return Err(media_type::NO_EVENTS);
        }
        let stream = self.stream_context(request, caller, None)?;
        let view = self.catalog.view(caller).await?;
        let honored = filter.clone().honored(&self.catalog, caller, &view).await?;
        let subscription = self.subscribe(caller, None).await?;
        // The interests are listed first, so that no change is missed. Older changes are not notified, so every replica
        // must already answer with them.
        let since = self.feed.acknowledged_head(caller.agent).await?;
        subscription.add_interests(honored.interests(since)).await?;
        let encoder = ListenEncoder::new(id, view.snapshot().description.clone());
        let first = encoder.acknowledge(&honored);
        let audit = StreamAuditGuard::new(&self.recorder, request);
        Ok(sse::response(event_stream::events(stream, subscription, encoder, first, audit)))
    }

    /// Answers `GET` with the stream of a session, which replaces the one before.
    pub(super) async fn open_session_stream(
        &self,
        request: &McpRequest<'_>,
        caller: &Caller,
        session: &Session,
    ) -> Result<Response<Body>, Fault> {
        let stream = self.stream_context(request, caller, Some(session.uid))?;
        let (session, revision) = self.sessions.take_stream(session).await?;
        if session.streams_opened > 1 {
            // The replica with the old stream is notified of this one before anything is sent here.
            self.feed.wait_for_replicas(Scope::from(session.uid), revision).await;
        }
        let last = request.parts.headers.get(&LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
        // Read before the subscription is made, which is then of this timeline or a newer one: a position of an older one
        // is never sealed as one of a newer.
        let timeline = self.feed.timeline_id().ok_or(Fault::StorageUnavailable)?;
        let (ids, labels) =
            (EventIds::new(&self.cursor_signer, session.uid, timeline), caller.labels().digest());
        let subscription = self.subscribe(caller, Some(Scope::from(session.uid))).await?;
        let start = match Start::read(&ids, &session, labels, last) {
            // Mostly this replica has seen the position, and the head need not be read.
            Start::Resumed(watermark)
                if watermark > subscription.watermark()
                    && watermark > self.feed.head(caller.agent).await? =>
            {
                Start::Unknown
            }
            start => start,
        };
        let known = subscription.add_interests(start.interests(&session)).await?;
        let reset = !known || start == Start::Unknown;
        if reset {
            subscription.mark_all_dirty();
        }
        let primed = ProtocolVersion::parse(&session.version).is_some_and(ProtocolVersion::primes_streams);
        let mut encoder = SessionEncoder::new(Arc::clone(&self.sessions), session, ids, &subscription);
        let mut first = Vec::new();
        if primed {
            encoder.prime(&mut first);
        }
        if reset {
            encoder.log_reset(&mut first);
        }
        let audit = StreamAuditGuard::new(&self.recorder, request);
        Ok(sse::response(event_stream::events(stream, subscription, encoder, first, audit)))
    }

    fn stream_context(
        &self,
        request: &McpRequest<'_>,
        caller: &Caller,
        session: Option<SessionUid>,
    ) -> Result<StreamContext, Fault> {
        let permit = self.streams.acquire(caller, request.client(), session)?;
        if self.streams.closing.is_cancelled() {
            return Err(Fault::BUSY);
        }
        Ok(StreamContext {
            identity: Arc::clone(self.authenticator.identity()),
            feed: Arc::clone(&self.feed) as Arc<_>,
            caller: caller.clone(),
            keep_alive: self.options.keep_alive,
            closing: self.streams.closing.clone(),
            permit,
            trace: self.tracer.as_ref().map(|tracer| EventTrace::new(tracer, &self.recorder, request)),
        })
    }

    /// Opens a subscription to the caller's agent, which is rechecked when access to the agent or the session changes.
    async fn subscribe(&self, caller: &Caller, session: Option<Scope>) -> Result<Subscription, Fault> {
        let own = caller.grant.as_ref().map(|grant| Scope::from(grant.credential.tenant));
        let agents = Scope::from(caller.tenant);
        let mut recheck_on = vec![agents];
        recheck_on.extend(own.filter(|own| *own != agents));
        recheck_on.extend(session);
        self.feed.subscribe(caller.tenant, caller.agent, caller.labels(), &recheck_on).await
    }
}
