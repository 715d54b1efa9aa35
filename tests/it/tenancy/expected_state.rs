//! The model: the tenants, agents and keys that should exist on two gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};

pub(super) const TENANTS: [&str; 3] = ["acme", "rival", "third"];
pub(super) const AGENTS: [&str; 4] = ["a", "b", "c", "d"];
/// The same for all agents.
pub(super) const URIS: [&str; 3] = ["beeos://agent/config", "file:///shared", "x:1"];

/// The timeout for the replica that did not write to return the right answer.
const SETTLE: Duration = Duration::from_secs(5);

/// An existing agent.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) tenant: usize,
    /// The number of the agent among all agents ever created.
    pub(super) life: usize,
    pub(super) public: bool,
    pub(super) enabled: bool,
    pub(super) texts: BTreeMap<&'static str, String>,
}

/// An issued key, valid or not.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) tenant: usize,
    /// The number of the agent that it reaches; `None` for an owner key.
    pub(super) life: Option<usize>,
    pub(super) mcp: bool,
    pub(super) registry: bool,
    pub(super) good: bool,
}

/// The expected answer of an agent's endpoint to a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    /// These texts.
    Texts(BTreeMap<&'static str, String>),
    /// A refusal with its reason, for the agent's own credentials.
    Refusal(&'static str),
    /// The answer for an agent that does not exist.
    Nothing,
}

pub(super) struct ExpectedState {
    pub(super) database: Database,
    pub(super) replicas: [Replica; 2],
    pub(super) agents: BTreeMap<&'static str, Agent>,
    pub(super) keys: Vec<Key>,
    /// The tenant that a slug is reserved for.
    owners: BTreeMap<&'static str, usize>,
    /// Agents that have ever been public.
    pub(super) once_public: BTreeSet<usize>,
    lives: usize,
    writes: usize,
}

impl ExpectedState {
    pub(super) async fn new() -> Self {
        let database = database().await;
        let start = || Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 1).start();
        let replicas = [start().await, start().await];
        let mut state = Self {
            database,
            replicas,
            agents: BTreeMap::new(),
            keys: Vec::new(),
            owners: BTreeMap::new(),
            once_public: BTreeSet::new(),
            lives: 0,
            writes: 0,
        };
        state.furnish().await;
        state
    }

    /// A URI to request from the first step on.
    async fn furnish(&mut self) {
        for tenant in TENANTS {
            self.replicas[0].tenant(tenant).await;
        }
        for (tenant, slug) in [(0, "a"), (1, "b"), (0, "c")] {
            self.create(0, tenant, slug, false).await;
            for uri in URIS {
                self.put(0, slug, uri).await;
            }
            for scopes in [0, 4] {
                self.issue(0, slug, scopes).await;
            }
        }
    }

    async fn admin(
        &self,
        replica: usize,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> crate::support::http::Answer {
        let answer = self.replicas[replica].admin(method, path, body).await;
        assert!(answer.status.is_success() || answer.status == StatusCode::CONFLICT, "{}", answer.text());
        answer
    }

    /// The mark that all texts of an agent contain.
    pub(super) fn mark(&self, slug: &str, agent: &Agent) -> String {
        format!("[[{}/{slug}#{}]]", TENANTS[agent.tenant], agent.life)
    }

    pub(super) async fn create(&mut self, replica: usize, tenant: usize, slug: &'static str, public: bool) {
        let agent = Agent { tenant, life: self.lives, public, enabled: true, texts: BTreeMap::new() };
        let mark = self.mark(slug, &agent);
        let access = if public { "public" } else { "key" };
        let body = json!({
            "id": slug, "tenant": TENANTS[tenant], "name": mark, "instructions": mark, "access": access,
        });
        let answer = self.admin(replica, "POST", "/agents", Some(body)).await;
        let owner = *self.owners.get(slug).unwrap_or(&tenant);
        let expected = match (self.agents.contains_key(slug), owner == tenant) {
            (true, _) => (StatusCode::CONFLICT, json!("already_exists")),
            (false, false) => (StatusCode::CONFLICT, json!("slug_retired")),
            (false, true) => (StatusCode::CREATED, Value::Null),
        };
        assert_eq!((answer.status, answer.json()["code"].clone()), expected);
        if answer.status == StatusCode::CREATED {
            self.owners.insert(slug, tenant);
            self.once_public.extend(public.then_some(agent.life));
            self.agents.insert(slug, agent);
            self.lives += 1;
        }
    }

    pub(super) async fn delete(&mut self, replica: usize, slug: &'static str) {
        let Some(agent) = self.agents.remove(slug) else { return };
        self.admin(replica, "DELETE", &format!("/agents/{slug}"), None).await;
        for key in self.keys.iter_mut().filter(|key| key.life == Some(agent.life)) {
            key.good = false;
        }
    }

    pub(super) async fn patch(&mut self, replica: usize, slug: &'static str, public: bool, enabled: bool) {
        let Some(agent) = self.agents.get_mut(slug) else { return };
        (agent.public, agent.enabled) = (public, enabled);
        self.once_public.extend(public.then_some(agent.life));
        let access = if public { "public" } else { "key" };
        let body = json!({"access": access, "enabled": enabled});
        self.admin(replica, "PATCH", &format!("/agents/{slug}"), Some(body)).await;
    }

    pub(super) async fn put(&mut self, replica: usize, slug: &'static str, uri: &'static str) {
        let Some(agent) = self.agents.get(slug) else { return };
        let mark = self.mark(slug, agent);
        let text = format!("{mark} write {}", self.writes);
        let body = json!({"name": mark, "description": mark, "contents": [{"text": text}]});
        self.admin(replica, "PUT", &resource(slug, uri), Some(body)).await;
        self.writes += 1;
        self.agents.get_mut(slug).unwrap().texts.insert(uri, text);
    }

    pub(super) async fn remove(&mut self, replica: usize, slug: &'static str, uri: &'static str) {
        let Some(agent) = self.agents.get_mut(slug) else { return };
        if agent.texts.remove(uri).is_some() {
            self.admin(replica, "DELETE", &resource(slug, uri), None).await;
        }
    }

    /// Creates a key of an agent, or of its tenant's owner; an agent has at most a few valid ones.
    pub(super) async fn issue(&mut self, replica: usize, slug: &'static str, scopes: usize) {
        const SCOPES: [&[&str]; 5] = [&["mcp"], &["registry"], &["audit"], &["mcp", "registry"], &[]];
        let Some(agent) = self.agents.get(slug) else { return };
        let (tenant, scopes) = (agent.tenant, SCOPES[scopes % SCOPES.len()]);
        let life = (!scopes.is_empty()).then_some(agent.life);
        if self.keys.iter().filter(|key| key.good && key.tenant == tenant && key.life == life).count() >= 5 {
            return;
        }
        let made = match life {
            Some(_) => {
                self.admin(replica, "POST", &format!("/agents/{slug}/keys"), Some(json!({"scopes": scopes})))
                    .await
            }
            None => {
                self.admin(replica, "POST", &format!("/tenants/{}/keys", TENANTS[tenant]), Some(json!({})))
                    .await
            }
        };
        let has = |scope| life.is_none() || scopes.contains(&scope);
        self.keep(
            &made.json(),
            Key {
                id: String::new(),
                secret: String::new(),
                tenant,
                life,
                mcp: has("mcp"),
                registry: has("registry"),
                good: true,
            },
        );
    }

    fn keep(&mut self, made: &Value, key: Key) {
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        self.keys.push(Key { id: text("id"), secret: text("key"), ..key });
    }

    pub(super) async fn revoke(&mut self, replica: usize, key: usize) {
        let Some(key) = self.keys.get_mut(key) else { return };
        key.good = false;
        let path = format!("/keys/{}", key.id);
        self.admin(replica, "DELETE", &path, None).await;
    }

    pub(super) async fn rotate(&mut self, replica: usize, key: usize) {
        let Some(old) = self.keys.get_mut(key).filter(|key| key.good) else { return };
        old.good = false;
        let old = old.clone();
        let path = format!("/keys/{}/rotate", old.id);
        let made = self.admin(replica, "POST", &path, Some(json!({"graceSeconds": 0}))).await.json();
        self.keep(&made, Key { good: true, ..old });
    }

    /// Whether a key reaches an agent.
    pub(super) fn reaches(key: &Key, agent: &Agent) -> bool {
        key.good && key.tenant == agent.tenant && key.life.is_none_or(|life| life == agent.life)
    }

    /// The expected answer of the endpoint `slug` to the holder of a key, or to an anonymous caller.
    pub(super) fn due(&self, key: Option<&Key>, slug: &str) -> Due {
        let agent = self.agents.get(slug);
        let own = agent.filter(|agent| key.is_some_and(|key| Self::reaches(key, agent)));
        let valid = key.is_none_or(|key| key.good);
        match (own, agent) {
            (Some(own), _) if !own.enabled => Due::Refusal("agent_disabled"),
            (Some(own), _) if own.public || key.is_some_and(|key| key.mcp) => Due::Texts(own.texts.clone()),
            (Some(_), _) => Due::Refusal("insufficient_scope"),
            (None, Some(other)) if valid && other.public && other.enabled => Due::Texts(other.texts.clone()),
            (None, _) => Due::Nothing,
        }
    }

    /// Checks that an answer to the holder of `key` contains no text of an agent that the key does not reach and that
    /// was never public.
    pub(super) fn assert_no_leak(&self, key: Option<&Key>, answer: &str) {
        for mark in answer.split("[[").skip(1) {
            let (mark, _) = mark.split_once("]]").unwrap();
            let (tenant, life) = (mark.split('/').next(), mark.rsplit('#').next().unwrap());
            let life: usize = life.parse().unwrap();
            let reached = key.is_some_and(|key| {
                tenant == Some(TENANTS[key.tenant]) && key.life.is_none_or(|own| own == life)
            });
            assert!(reached || self.once_public.contains(&life), "{key:?} received {mark}: {answer}");
        }
    }
}

/// Repeats a request until the answer is right, on a replica that may not have received the change yet.
pub(super) async fn settled<T, E: std::fmt::Display>(request: impl AsyncFn() -> Result<T, E>) -> T {
    let deadline = tokio::time::Instant::now() + SETTLE;
    let mut interval = tokio::time::interval(Duration::from_millis(5));
    loop {
        interval.tick().await;
        match request().await {
            Ok(right) => return right,
            Err(wrong) => assert!(tokio::time::Instant::now() < deadline, "{wrong}"),
        }
    }
}
