//! What clients of both eras share: their last view of the catalog, and how they read. A client reads only after a
//! notification or right after subscribing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Agent, Subscriptions, parse};
use crate::fleet::Fleet;
use crate::http::Answer;
use crate::ledger::{Ledger, count};
use crate::support::events::EventSeal;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
/// The maximum time in which no replica answers.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The delay before another replica is tried.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The catalog of an agent, as it is or as a client last read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CatalogView {
    /// The number of each text; `None` for a missing resource.
    pub(crate) texts: BTreeMap<&'static str, Option<u64>>,
    /// URIs and URI templates with their names.
    pub(crate) resources: Vec<String>,
    /// Prompts with their descriptions.
    pub(crate) prompts: Vec<String>,
}

/// The state of a client that the checks compare.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) agent: Agent,
    pub(crate) subscriptions: Subscriptions,
    /// Whether its agent is never written, so that no notification may arrive.
    pub(crate) never_written: bool,
    pub(crate) view: Mutex<CatalogView>,
    /// Whether it has a stream now.
    pub(crate) connected: AtomicBool,
    /// Whether it has ever had a stream.
    pub(crate) was_connected: AtomicBool,
    /// Its last attempts to open a stream, and when they ended.
    pub(crate) attempts: Mutex<VecDeque<(Instant, String)>>,
}

/// How many attempts are kept for the report.
const ATTEMPTS: usize = 12;

impl Client {
    /// Records the outcome of an attempt to open a stream.
    pub(crate) fn tried(&self, outcome: impl std::fmt::Display) {
        let mut attempts = self.attempts.lock().unwrap();
        if attempts.len() == ATTEMPTS {
            attempts.pop_front();
        }
        attempts.push_back((Instant::now(), outcome.to_string()));
    }

    /// Its last attempts, with the seconds since each.
    pub(crate) fn attempts(&self) -> String {
        let attempts = self.attempts.lock().unwrap();
        let described =
            attempts.iter().map(|(at, what)| format!("{:.1} s ago {what}", at.elapsed().as_secs_f64()));
        described.collect::<Vec<_>>().join("; ")
    }
}

/// A running client.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) client: Arc<Client>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) ledger: Arc<Ledger>,
    /// The secret of event ids.
    pub(crate) seal: EventSeal,
    /// The session of a legacy client.
    pub(crate) session: Option<String>,
}

impl Worker {
    pub(crate) fn connected(&self, yes: bool) {
        self.client.connected.store(yes, Ordering::Relaxed);
        self.client.was_connected.fetch_or(yes, Ordering::Relaxed);
    }

    pub(crate) fn path(&self) -> String {
        format!("/{}/mcp", self.client.agent.slug)
    }

    pub(crate) fn foreign(&self, what: impl std::fmt::Display) {
        self.ledger.foreign.add(format!("{} received {what}", self.client.name));
    }

    /// Sends a call to one replica, once.
    pub(crate) async fn try_call(&self, port: u16, method: &str, params: &Value) -> Option<Answer> {
        let mut headers = vec![
            ("x-agent-api-key", self.client.agent.key.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let mut params = params.clone();
        let name = params["uri"].as_str().map(str::to_owned);
        match &self.session {
            Some(session) => {
                headers.extend([("mcp-session-id", session.as_str()), ("mcp-protocol-version", LEGACY)]);
            }
            None if method == "initialize" => {}
            None => {
                params["_meta"] = meta();
                headers.extend([("mcp-protocol-version", MODERN), ("mcp-method", method)]);
                headers.extend(name.as_deref().map(|name| ("mcp-name", name)));
            }
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.fleet.http.send(port, "POST", &self.path(), &headers, message.to_string()).await
    }

    /// Sends a call to any replica until one answers.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Answer {
        let began = Instant::now();
        loop {
            match self.try_call(self.fleet.any(), method, &params).await {
                Some(answer) if answer.status == 200 => return answer,
                Some(answer) if answer.status < 500 => {
                    let text = answer.text();
                    self.ledger
                        .refused
                        .add(format!("{} {method}: {} {text}", self.client.name, answer.status));
                }
                _ => {}
            }
            assert!(began.elapsed() < TIMEOUT, "{}: no replica answers {method}", self.client.name);
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Reads a URI on any replica and checks that it is not older than what any client was notified of before.
    pub(crate) async fn read(&self, uri: &'static str) -> Option<u64> {
        let agent = &self.client.agent.slug;
        let required = self.ledger.required(agent, uri);
        let answer = self.call("resources/read", json!({"uri": uri})).await.json();
        count(&self.ledger.reads);
        let number = answer["result"]["contents"][0]["text"].as_str().map(|text| {
            let (whose, number) = parse(text).unwrap();
            if whose != agent {
                self.foreign(format_args!("a text of another agent at {uri}: {text}"));
            }
            number
        });
        if number.is_none() && !["-32002", "-32602"].contains(&answer["error"]["code"].to_string().as_str()) {
            self.ledger.refused.add(format!("{} {uri}: {answer}", self.client.name));
        }
        if self.ledger.is_stale(agent, uri, required, number) {
            let name = &self.client.name;
            self.ledger
                .stale
                .add(format!("{name} read {number:?} at {uri} after a notification of {required}"));
        }
        self.client.view.lock().unwrap().texts.insert(uri, number);
        number
    }

    /// Lists resources and templates.
    pub(crate) async fn list_resources(&self) {
        let mut all = self.list("resources/list", "resources", "uri", "name").await;
        all.extend(self.list("resources/templates/list", "resourceTemplates", "uriTemplate", "name").await);
        all.sort();
        self.client.view.lock().unwrap().resources = all;
    }

    /// Lists prompts.
    pub(crate) async fn list_prompts(&self) {
        let all = self.list("prompts/list", "prompts", "name", "description").await;
        self.client.view.lock().unwrap().prompts = all;
    }

    async fn list(&self, method: &str, member: &str, id: &str, name: &str) -> Vec<String> {
        let answer = self.call(method, json!({})).await.json();
        count(&self.ledger.reads);
        items(&answer["result"][member], id, name)
    }

    /// Reads everything it is subscribed to.
    pub(crate) async fn read_all(&self) {
        for uri in self.client.subscriptions.uris.clone() {
            self.read(uri).await;
        }
        self.list_resources().await;
        self.list_prompts().await;
    }
}

/// The items of a list as text, sorted.
pub(crate) fn items(list: &Value, id: &str, name: &str) -> Vec<String> {
    let item = |item: &Value| format!("{} {}", item[id].as_str().unwrap(), item[name].as_str().unwrap_or(""));
    let mut items: Vec<_> = list.as_array().unwrap_or(&Vec::new()).iter().map(item).collect();
    items.sort();
    items
}

pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// Sleeps for a random time.
pub(crate) async fn pause(millis: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rand::random_range(millis))).await;
}
