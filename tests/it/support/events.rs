//! A client of server-sent events.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;
use uuid::Uuid;
use waggle::http::cursor::CursorSigner;
use waggle::mcp::legacy::event_id::{EventIds, Position};
use waggle::model::feed::TimelineId;
use waggle::model::session::SessionId;

use super::app::Replica;
use super::cluster::Database;
use super::http::{Answer, Client};

/// The timeout for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pause after which no further event is expected.
const QUIET: Duration = Duration::from_millis(300);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) data: Option<String>,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Events {
    response: reqwest::Response,
    unread: String,
    comments: usize,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.data.as_deref().unwrap()).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The position that the sealed id of a session's event carries.
    pub(crate) fn position(&self, ids: &EventIds) -> Position {
        ids.open(self.id.as_deref().unwrap()).unwrap()
    }

    /// A summary of the event: `updated x:a`, `resources`, `prompts`, or the method.
    pub(crate) fn summary(&self) -> String {
        let message = self.json();
        match message["method"].as_str() {
            Some("notifications/resources/updated") => {
                format!("updated {}", message["params"]["uri"].as_str().unwrap())
            }
            Some("notifications/resources/list_changed") => "resources".to_owned(),
            Some("notifications/prompts/list_changed") => "prompts".to_owned(),
            Some("notifications/tools/list_changed") => "tools".to_owned(),
            Some("notifications/message") => {
                format!("log {}", message["params"]["data"]["code"].as_str().unwrap())
            }
            Some(other) => other.to_owned(),
            None => "result".to_owned(),
        }
    }
}

impl Events {
    /// Reads the stream of an answer; panics if it has none.
    pub(crate) fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(
            [header("content-type"), header("x-accel-buffering"), header("cache-control")],
            ["text/event-stream", "no", "no-store"]
        );
        Self { response, unread: String::new(), comments: 0 }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        tokio::time::timeout(PATIENCE, self.read())
            .await
            .unwrap_or_else(|_| panic!("no event within {PATIENCE:?}"))
    }

    /// A summary of the next event.
    pub(crate) async fn next_summary(&mut self) -> String {
        self.next().await.unwrap_or_else(|| panic!("the stream ended")).summary()
    }

    /// Receives events with these summaries, in this order, and no others.
    pub(crate) async fn expect_events(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.next_summary().await, *expected);
        }
        assert_eq!(self.drain(QUIET).await, Vec::<String>::new());
    }

    /// The summaries of the events until none arrives for a while.
    pub(crate) async fn drain(&mut self, quiet: Duration) -> Vec<String> {
        let mut summaries = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(quiet, self.read()).await {
            if event.data.is_some() {
                summaries.push(event.summary());
            }
        }
        summaries
    }

    /// How many comments were read.
    pub(crate) fn comments(&self) -> usize {
        self.comments
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            while let Some(rest) = self.unread.strip_prefix(":\n") {
                self.comments += 1;
                self.unread = rest.to_owned();
            }
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let event = event(block);
                self.unread = rest.to_owned();
                return Some(event);
            }
            let chunk = self.response.chunk().await.ok().flatten()?;
            self.unread.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

fn event(block: &str) -> Event {
    let mut event = Event { id: None, retry: None, data: None };
    for line in block.lines() {
        match line.split_once(": ").unwrap_or_else(|| panic!("{line:?}")) {
            ("id", id) => event.id = Some(id.to_owned()),
            ("retry", retry) => event.retry = Some(retry.parse().unwrap()),
            ("data", data) => event.data = Some(data.to_owned()),
            _ => panic!("{line:?}"),
        }
    }
    event
}

/// What the gateways of a database seal event ids with.
#[derive(Debug, Clone)]
pub(crate) struct EventSeal {
    secret: CursorSigner,
    timeline: TimelineId,
}

/// What the gateways of a database seal event ids with now.
pub(crate) async fn event_seal(database: &Database) -> EventSeal {
    let mut connection = database.connect().await;
    let query = "select cursor_secret, waggle_timeline(), epoch from gateway";
    let row = sqlx::query_as(query).fetch_one(&mut connection).await;
    connection.close().await.unwrap();
    let (secret, server, epoch): (Vec<u8>, String, Option<Uuid>) = row.unwrap();
    EventSeal { secret: CursorSigner::new(&secret).unwrap(), timeline: TimelineId::new(&server, epoch) }
}

/// The event ids of the session that a client knows by `id`.
pub(crate) fn event_ids(seal: &EventSeal, id: &str) -> EventIds {
    EventIds::new(&seal.secret, SessionId::parse(id).unwrap().uid(), seal.timeline.clone())
}

/// A client of a legacy revision in a session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) agent: String,
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) version: String,
}

impl Session {
    /// Opens a session.
    pub(crate) async fn open(replica: &Replica, agent: &str, key: &str, version: &str) -> Self {
        let params = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "it", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = replica.http.post(agent, key, &message).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], version, "{}", answer.text());
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        Self { agent: agent.to_owned(), key: key.to_owned(), id, version: version.to_owned() }
    }

    fn headers<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [
            ("x-agent-api-key", self.key.as_str()),
            ("mcp-session-id", self.id.as_str()),
            ("mcp-protocol-version", self.version.as_str()),
        ];
        own.into_iter().chain(more.iter().copied()).collect()
    }

    /// Calls a method in the session, on any replica.
    pub(crate) async fn call(&self, replica: &Replica, method: &str, params: Value) -> Answer {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let headers = self.headers(&[("content-type", "application/json")]);
        replica.http.send("POST", &format!("/{}/mcp", self.agent), &headers, message.to_string()).await
    }

    /// Calls a method whose result must be empty.
    pub(crate) async fn done(&self, replica: &Replica, method: &str, params: Value) {
        let answer = self.call(replica, method, params).await;
        assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    }

    pub(crate) async fn subscribe(&self, replica: &Replica, uri: &str) {
        self.done(replica, "resources/subscribe", json!({"uri": uri})).await;
    }

    pub(crate) async fn unsubscribe(&self, replica: &Replica, uri: &str) {
        self.done(replica, "resources/unsubscribe", json!({"uri": uri})).await;
    }

    /// The event ids of the session.
    pub(crate) async fn event_ids(&self, database: &Database) -> EventIds {
        event_ids(&event_seal(database).await, &self.id)
    }

    /// `GET` or `DELETE` in the session.
    pub(crate) async fn send(&self, replica: &Replica, method: &str, more: &[(&str, &str)]) -> Answer {
        replica.http.send(method, &format!("/{}/mcp", self.agent), &self.headers(more), "").await
    }

    /// Opens the session's stream, from the beginning or after an event.
    pub(crate) async fn stream(&self, replica: &Replica, last_event_id: Option<&str>) -> Events {
        let mut more = vec![("accept", "text/event-stream")];
        more.extend(last_event_id.map(|id| ("last-event-id", id)));
        let path = format!("/{}/mcp", self.agent);
        Events::of(replica.http.respond("GET", &path, &self.headers(&more), "").await.unwrap())
    }
}

/// Opens a stream of the modern era; its acknowledgement is unread.
pub(crate) async fn listen(replica: &Replica, agent: &str, key: &str, id: Value, filter: Value) -> Events {
    Events::of(try_listen(replica, agent, key, id, filter).await)
}

/// Like [`listen`], but the answer may be a refusal.
pub(crate) async fn try_listen(
    replica: &Replica,
    agent: &str,
    key: &str,
    id: Value,
    filter: Value,
) -> reqwest::Response {
    try_listen_at(&replica.http, agent, key, id, filter).await
}

/// Like [`try_listen`], at any gateway.
pub(crate) async fn try_listen_at(
    http: &Client,
    agent: &str,
    key: &str,
    id: Value,
    filter: Value,
) -> reqwest::Response {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"_meta": meta, "notifications": filter});
    let message = json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
    let headers = [
        ("x-agent-api-key", key),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    http.respond("POST", &format!("/{agent}/mcp"), &headers, message.to_string()).await.unwrap()
}
