//! The stream of a session: resume by `Last-Event-ID`, replacement by a newer stream, and log messages (2025-11-25, Transports).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::event_id::{EventIds, Position};
use crate::feed::hub::{ChangeEvent, Subscription, UNKNOWN_WATERMARK};
use crate::mcp::event_stream::{Obstacle, StreamEncoder};
use crate::mcp::notification::{self, END};
use crate::mcp::sse;
use crate::mcp::streams::StreamEnd;
use crate::model::caller::Payer;
use crate::model::label::LabelsDigest;
use crate::model::scope::Revision;
use crate::model::session::{LogLevel, Session};
use crate::model::subject::{Interest, Subject};
use crate::sessions::Sessions;
use crate::sessions::in_use::SessionInUse;

/// How long before its expiry a client is warned of it.
const EXPIRES_SOON: time::Duration = time::Duration::days(1);

/// The position at which a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The client sends no position: it had no stream of the session yet, or does not resume one.
    First,
    /// Everything up to this revision was sent.
    Resumed(Revision),
    /// The position cannot be read, or belongs to a caller with other labels: what was sent to that one does not tell what
    /// this one has still to receive.
    Unknown,
}

impl Start {
    /// Reads `Last-Event-ID`.
    pub fn read(
        ids: &EventIds,
        session: &Session,
        labels: LabelsDigest,
        last_event_id: Option<&str>,
    ) -> Self {
        let Some(id) = last_event_id else {
            let same = session.labels.is_none_or(|opened| opened == labels);
            return if same { Self::First } else { Self::Unknown };
        };
        // A stream that the session does not know was opened before the database was restored without a change of timeline that
        // was detected.
        // Without a watermark everything has to be notified, not only what changed.
        let resumes = |position: &Position| {
            position.stream < session.streams_opened
                && position.labels == labels
                && position.watermark != UNKNOWN_WATERMARK
        };
        let known = ids.open(id).filter(resumes);
        known.map_or(Self::Unknown, |position| Self::Resumed(position.watermark))
    }

    /// The interests of the session, from this position on.
    pub fn interests(self, session: &Session) -> Vec<Interest> {
        let after = |since: Revision| match self {
            Self::Resumed(watermark) => since.max(watermark),
            Self::First | Self::Unknown => since,
        };
        interests(session)
            .map(|Interest { subject, since }| Interest { subject, since: after(since) })
            .collect()
    }
}

fn interests(session: &Session) -> impl Iterator<Item = Interest> {
    let lists = [Subject::ResourceList, Subject::PromptList, Subject::ToolList].into_iter();
    let lists = lists.map(|subject| Interest { subject, since: session.since });
    let resource = |uri: &crate::model::ids::ResourceUri| Subject::resource(uri.clone());
    let subscribed = session.subscriptions.iter();
    lists.chain(subscribed.map(move |one| Interest { subject: resource(&one.uri), since: one.since }))
}

/// Encodes the events of one stream of a session.
pub struct SessionEncoder {
    sessions: Arc<Sessions>,
    session: Arc<Session>,
    ids: EventIds,
    /// The watermark of the last event, and the number of the next one.
    position: Position,
    /// The expiry that the client was warned of.
    warned: Option<OffsetDateTime>,
    /// Keeps the session in use while the stream is open.
    _in_use: SessionInUse,
}

impl SessionEncoder {
    /// For the newest stream of a session.
    pub fn new(
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        ids: EventIds,
        subscription: &Subscription,
    ) -> Self {
        let (watermark, labels) = (subscription.watermark(), subscription.labels().digest());
        let position = Position { stream: session.streams_opened, watermark, event: 0, labels };
        let in_use = sessions.keep_in_use(session.uid);
        Self { sessions, session, ids, position, warned: None, _in_use: in_use }
    }

    /// The id of the next event. An event without one leaves the client's position where it was.
    fn id(&mut self, watermark: Revision) -> Option<String> {
        self.position.watermark = watermark;
        let id = self.ids.seal(self.position, self.sessions.random());
        self.position.event += 1;
        id
    }

    /// Appends the event that only carries a position to resume at.
    pub fn prime(&mut self, out: &mut Vec<u8>) {
        let id = self.id(self.position.watermark);
        sse::priming(out, id.as_deref(), self.sessions.random());
    }

    /// Appends the warning that missed changes are unknown, so that every subject is notified.
    pub fn log_reset(&mut self, out: &mut Vec<u8>) {
        let message = "what changed since the last event is not known any more: everything may have changed";
        self.log(out, LogLevel::Warning, "replay_incomplete", message);
    }

    /// Appends `notifications/message`, if the client has set a level that includes it.
    fn log(&mut self, out: &mut Vec<u8>, level: LogLevel, code: &str, message: &str) {
        if self.session.level.is_none_or(|least| level < least) {
            return;
        }
        let data = json!({"code": code, "message": message});
        let params: Value = json!({"level": level.as_str(), "logger": "waggle", "data": data});
        let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#);
        let id = self.id(self.position.watermark);
        sse::event(out, id.as_deref(), &[message.as_bytes()]);
    }

    /// Appends a warning for each new expiry that is near: a rotation may set an earlier one.
    fn log_expiry(&mut self, expires_at: Option<OffsetDateTime>, out: &mut Vec<u8>) {
        let soon = self.sessions.now() + EXPIRES_SOON;
        let near = expires_at.filter(|expires| *expires <= soon);
        if near.is_some() && near != self.warned {
            self.warned = near;
            let message = "the credential of this session expires within a day";
            self.log(out, LogLevel::Warning, "key_expires", message);
        }
    }

    /// Adds the interests of new subscriptions and drops those that ended.
    async fn adjust(&self, subscription: &Subscription) -> Result<(), Obstacle> {
        let present: HashSet<_> = subscription.subjects().into_iter().collect();
        let mut new: Vec<_> = interests(&self.session).collect();
        let wanted: HashSet<_> = new.iter().map(|interest| interest.subject.clone()).collect();
        subscription.remove_interests(&present.difference(&wanted).cloned().collect::<Vec<_>>());
        new.retain(|interest| !present.contains(&interest.subject));
        if new.is_empty() {
            return Ok(());
        }
        let subjects: Vec<_> = new.iter().map(|interest| interest.subject.clone()).collect();
        subscription.add_interests(new).await.map(drop).map_err(|_| {
            // They are added again by the next check.
            subscription.remove_interests(&subjects);
            Obstacle::Unknown
        })
    }
}

impl StreamEncoder for SessionEncoder {
    fn notification(&mut self, out: &mut Vec<u8>, change: &ChangeEvent) {
        let pieces = notification::changed(&change.subject);
        let id = self.id(change.watermark);
        let [name, value] = pieces.params;
        sse::event(out, id.as_deref(), &[pieces.head, name, value, END].map(str::as_bytes));
    }

    fn last(&mut self, out: &mut Vec<u8>, end: StreamEnd) {
        let (code, message) = match end {
            StreamEnd::Shutdown => ("shutdown", "the gateway is shutting down; connect again"),
            StreamEnd::NotAllowed => ("not_allowed", "the credential or the agent is not valid any more"),
            StreamEnd::Session => ("session_ended", "the session ended"),
            StreamEnd::Superseded => {
                ("superseded", "a newer stream of the session took the place of this one")
            }
        };
        self.log(out, LogLevel::Notice, code, message);
        sse::retry(out, self.sessions.random());
    }

    async fn check(
        &mut self,
        subscription: &Subscription,
        expires_at: Option<OffsetDateTime>,
        out: &mut Vec<u8>,
    ) -> Result<(), Obstacle> {
        let payer = Payer::Tenant(self.session.tenant);
        let session = self.sessions.current(payer, self.session.uid).await.map_err(|_| Obstacle::Unknown)?;
        let session = session.ok_or(Obstacle::End(StreamEnd::Session))?;
        if session.streams_opened > self.session.streams_opened {
            return Err(Obstacle::End(StreamEnd::Superseded));
        }
        if !Arc::ptr_eq(&session, &self.session) {
            let before = std::mem::replace(&mut self.session, session);
            self.adjust(subscription).await.inspect_err(|_| self.session = before)?;
        }
        // Both at once: other labels or interests may have left older changes unsent. A message to log that ends the
        // stream before this point carries the labels of what was sent, with which no stream of others resumes.
        self.position.labels = subscription.labels().digest();
        self.position.watermark = subscription.watermark();
        self.log_expiry(expires_at, out);
        Ok(())
    }
}
