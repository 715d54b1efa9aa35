//! Opening the streams of both eras.

use std::sync::Arc;

use http::{HeaderName, Response};

use super::accept;
use super::endpoint::{Arrival, Endpoint};
use super::legacy::stream::{SessionStream, Start};
use super::live::{self, Ground};
use super::modern::listen::{Filter, Listening};
use super::sse;
use super::version::ProtocolVersion;
use super::wire::RequestId;
use crate::feed::hub::Reading;
use crate::http::body::Body;
use crate::model::fault::Fault;
use crate::model::ids::SessionUid;
use crate::model::scope::Scope;
use crate::model::session::Session;
use crate::registry::access::Caller;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl Endpoint {
    /// Answers `subscriptions/listen` with a stream.
    pub(super) async fn listen(
        &self,
        arrival: &Arrival<'_>,
        caller: &Caller,
        filter: &Filter,
        id: RequestId<'_>,
    ) -> Result<Response<Body>, Fault> {
        if !accept::admits_events(&arrival.parts.headers) {
            return Err(accept::NO_EVENTS);
        }
        let ground = self.ground(arrival, caller, None)?;
        let snapshot = ground.registry.snapshot(caller).await?;
        let honoured = filter.clone().honoured(&ground.registry, caller, &snapshot).await?;
        let reading = self.read(caller, None).await?;
        // Listed first, so that nothing is missed; what was there before the request is no news, so that a client must
        // be able to read it wherever it asks.
        let since = self.feed.settled_head(caller.agent).await?;
        reading.take_up(honoured.interests(since)).await?;
        let listening = Listening::new(id, snapshot.description.clone());
        let first = listening.acknowledge(&honoured);
        Ok(sse::response(live::events(ground, reading, listening, first, self.farewell(arrival))))
    }

    /// Answers `GET` with the stream of a session, which takes the place of the one before.
    pub(super) async fn stream(
        &self,
        arrival: &Arrival<'_>,
        caller: Caller,
        session: &Session,
    ) -> Result<Response<Body>, Fault> {
        let ground = self.ground(arrival, &caller, Some(session.uid))?;
        let (session, revision) = ground.registry.take_stream(session).await?;
        if session.epoch > 1 {
            // Whoever has the stream until now hears of it before anything is said on this one.
            self.feed.settle(Scope::from(session.uid), revision).await;
        }
        let last = arrival.parts.headers.get(&LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
        let start = match Start::read(&session, last) {
            Start::Resumed(watermark) if watermark > self.feed.head(caller.agent).await? => Start::Unreadable,
            start => start,
        };
        let reading = self.read(&caller, Some(Scope::from(session.uid))).await?;
        let known = reading.take_up(start.interests(&session)).await?;
        let reset = !known || start == Start::Unreadable;
        if reset {
            reading.reset();
        }
        let primed = ProtocolVersion::parse(&session.version).is_some_and(ProtocolVersion::primes_streams);
        let mut voice = SessionStream::new(Arc::clone(&ground.registry), session, reading.watermark());
        let mut first = Vec::new();
        if primed {
            voice.prime(&mut first);
        }
        if reset {
            voice.log_reset(&mut first);
        }
        Ok(sse::response(live::events(ground, reading, voice, first, self.farewell(arrival))))
    }

    fn ground(
        &self,
        arrival: &Arrival<'_>,
        caller: &Caller,
        session: Option<SessionUid>,
    ) -> Result<Ground, Fault> {
        let place = self.streams.take(caller, arrival.client, session)?;
        if self.closing.is_cancelled() {
            return Err(Fault::Unavailable { retry_after: std::time::Duration::from_secs(1) });
        }
        Ok(Ground {
            registry: Arc::clone(self.performer.registry()),
            feed: Arc::clone(&self.feed) as Arc<_>,
            caller: caller.clone(),
            keep_alive: self.options.keep_alive,
            closing: self.closing.clone(),
            place,
        })
    }

    /// A stream of what happens to the caller's agent, which looks again when its access changes, or the session.
    async fn read(&self, caller: &Caller, session: Option<Scope>) -> Result<Reading, Fault> {
        let own = caller.grant.as_ref().map(|grant| Scope::from(grant.credential.tenant));
        let agents = Scope::from(caller.tenant);
        let mut watched = vec![agents];
        watched.extend(own.filter(|own| *own != agents));
        watched.extend(session);
        self.feed.open(caller.tenant, caller.agent, &watched).await
    }
}
