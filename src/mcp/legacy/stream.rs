//! The stream of a session: cursors, resumption, takeover, and messages of the log (2025-11-25, Transports).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::feed::hub::{Reading, Told};
use crate::mcp::live::{End, Obstacle, Voice};
use crate::mcp::notification::{self, END};
use crate::mcp::sse;
use crate::model::scope::Revision;
use crate::model::session::{LogLevel, Session};
use crate::model::subject::{Interest, Subject};
use crate::registry::Registry;
use crate::registry::sessions::SessionInUse;

/// After how many milliseconds a client may connect again.
const RETRY_MS: u64 = 1_000;
/// From when on a client is told that its credential expires.
const EXPIRES_SOON: time::Duration = time::Duration::days(1);

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The client was on no stream of the session yet, or does not say where it was.
    First,
    /// It has been told of everything up to this revision.
    Resumed(Revision),
    /// It says where it was, and that is not to be made out.
    Unreadable,
}

impl Start {
    /// Reads `Last-Event-ID`.
    pub fn read(session: &Session, last_event_id: Option<&str>) -> Self {
        match last_event_id {
            None => Self::First,
            Some(id) => resumed(session, id).map_or(Self::Unreadable, Self::Resumed),
        }
    }

    /// What the session wants to be told of, from here on.
    pub fn interests(self, session: &Session) -> Vec<Interest> {
        let after = |since: Revision| match self {
            Self::Resumed(watermark) => since.max(watermark),
            Self::First | Self::Unreadable => since,
        };
        interests(session)
            .map(|Interest { subject, since }| Interest { subject, since: after(since) })
            .collect()
    }
}

fn interests(session: &Session) -> impl Iterator<Item = Interest> {
    let lists = [Subject::ResourceList, Subject::PromptList].into_iter();
    let lists = lists.map(|subject| Interest { subject, since: session.since });
    let resource = |uri: &crate::model::uri::ResourceUri| Subject::resource(uri.clone());
    let subscribed = session.subscriptions.iter();
    lists.chain(subscribed.map(move |one| Interest { subject: resource(&one.uri), since: one.since }))
}

/// `<stream>-<watermark>-<n>`, where a stream is its session's mark and its own number in it.
fn resumed(session: &Session, id: &str) -> Option<Revision> {
    let mut parts = id.split('-');
    let (stream, watermark, number) = (parts.next()?, parts.next()?, parts.next()?);
    let epoch = i64::from_str_radix(stream.strip_prefix(&mark(session))?, 16).ok()?;
    number.parse::<u64>().ok()?;
    let watermark: i64 = watermark.parse().ok()?;
    let known = (1..session.epoch).contains(&epoch) && watermark >= 0 && parts.next().is_none();
    known.then_some(Revision(watermark))
}

/// What tells the events of one session from another's.
fn mark(session: &Session) -> String {
    session.uid.0.simple().to_string()[..8].to_owned()
}

/// What is said on one stream of a session.
pub struct SessionStream {
    registry: Arc<Registry>,
    session: Arc<Session>,
    stream: String,
    events: u64,
    watermark: Revision,
    /// The expiry that the client was warned of.
    warned: Option<OffsetDateTime>,
    /// The stream is open, so its session is in use.
    _in_use: SessionInUse,
}

impl SessionStream {
    /// For the stream that a session has just been given.
    pub fn new(registry: Arc<Registry>, session: Arc<Session>, watermark: Revision) -> Self {
        let stream = format!("{}{:x}", mark(&session), session.epoch);
        let in_use = registry.use_session(session.uid);
        Self { registry, session, stream, events: 0, watermark, warned: None, _in_use: in_use }
    }

    fn id(&mut self, watermark: Revision) -> String {
        self.watermark = watermark;
        let id = format!("{}-{watermark}-{}", self.stream, self.events);
        self.events += 1;
        id
    }

    /// The event that only says where to resume.
    pub fn prime(&mut self, out: &mut Vec<u8>) {
        let id = self.id(self.watermark);
        sse::priming(out, &id, RETRY_MS);
    }

    /// Says that it is not known what was missed, so that everything is told.
    pub fn log_reset(&mut self, out: &mut Vec<u8>) {
        let message = "what changed since the last event is not known any more: everything may have changed";
        self.log(out, LogLevel::Warning, "replay_incomplete", message);
    }

    /// Appends `notifications/message`, if the client asked for messages of this level.
    fn log(&mut self, out: &mut Vec<u8>, level: LogLevel, code: &str, message: &str) {
        if self.session.level.is_none_or(|least| level < least) {
            return;
        }
        let data = json!({"code": code, "message": message});
        let params: Value = json!({"level": level.as_str(), "logger": "waggle", "data": data});
        let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#);
        let id = self.id(self.watermark);
        sse::event(out, Some(&id), &[message.as_bytes()]);
    }

    /// Warns once of each expiry that is near: a rotation may set an earlier one.
    fn log_expiry(&mut self, expires_at: Option<OffsetDateTime>, out: &mut Vec<u8>) {
        let soon = self.registry.now() + EXPIRES_SOON;
        let near = expires_at.filter(|expires| *expires <= soon);
        if near.is_some() && near != self.warned {
            self.warned = near;
            let message = "the credential of this session expires within a day";
            self.log(out, LogLevel::Warning, "key_expires", message);
        }
    }

    /// Takes up what was subscribed to since, drops what was unsubscribed from.
    async fn adjust(&self, reading: &Reading) -> Result<(), Obstacle> {
        let present: HashSet<_> = reading.subjects().into_iter().collect();
        let mut new: Vec<_> = interests(&self.session).collect();
        let wanted: HashSet<_> = new.iter().map(|interest| interest.subject.clone()).collect();
        reading.drop_interests(&present.difference(&wanted).cloned().collect::<Vec<_>>());
        new.retain(|interest| !present.contains(&interest.subject));
        if new.is_empty() {
            return Ok(());
        }
        let subjects: Vec<_> = new.iter().map(|interest| interest.subject.clone()).collect();
        reading.take_up(new).await.map(drop).map_err(|_| {
            // They are taken up again when it next looks.
            reading.drop_interests(&subjects);
            Obstacle::Unknown
        })
    }
}

impl Voice for SessionStream {
    fn tell(&mut self, out: &mut Vec<u8>, told: &Told) {
        let pieces = notification::changed(&told.subject);
        let id = self.id(told.watermark);
        let [name, value] = pieces.params;
        sse::event(out, Some(&id), &[pieces.head, name, value, END].map(str::as_bytes));
    }

    fn last(&mut self, out: &mut Vec<u8>, end: End) {
        let (code, message) = match end {
            End::Shutdown => ("shutdown", "the gateway is shutting down; connect again"),
            End::NotAllowed => ("not_allowed", "the credential or the agent is not valid any more"),
            End::Session => ("session_ended", "the session ended"),
            End::Superseded => ("superseded", "a newer stream of the session took the place of this one"),
        };
        self.log(out, LogLevel::Notice, code, message);
        sse::retry(out, RETRY_MS);
    }

    async fn look_again(
        &mut self,
        reading: &Reading,
        expires_at: Option<OffsetDateTime>,
        out: &mut Vec<u8>,
    ) -> Result<(), Obstacle> {
        let session = self.registry.session_now(self.session.uid).await.map_err(|_| Obstacle::Unknown)?;
        let session = session.ok_or(Obstacle::End(End::Session))?;
        if session.epoch > self.session.epoch {
            return Err(Obstacle::End(End::Superseded));
        }
        if !Arc::ptr_eq(&session, &self.session) {
            let before = std::mem::replace(&mut self.session, session);
            self.adjust(reading).await.inspect_err(|_| self.session = before)?;
        }
        self.log_expiry(expires_at, out);
        Ok(())
    }
}
