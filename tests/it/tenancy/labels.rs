//! Random labels on everything: an agent with hidden definitions answers each caller like a twin of it that only has what
//! the caller sees, on two replicas.
//!
//! `VERIFY_LABELS_STEPS` sets the number of compared answers; `VERIFY_LABELS_SEED` repeats a history.

mod comparison;
mod published;
mod step;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use self::comparison::{ask, assert_same, compare_pages, compare_stream, compare_subscription, post};
use self::published::{LABELS, MARKER, Published};
use self::step::Step;
use super::expected_state::settled;
use super::probes::message;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::events::Session;

/// The number of compared answers without `VERIFY_LABELS_STEPS`.
const STEPS: usize = 3_000;
/// How many answers are compared between two writes.
const STEPS_PER_WRITE: usize = 60;

/// The agent that has everything.
const MIXED: &str = "mixed";

/// A caller of the mixed agent and of its twin.
struct Caller {
    twin: String,
    /// Its key at each agent; `None` without a credential.
    keys: Option<[String; 2]>,
    /// The ids of its keys if their labels change.
    ids: Vec<String>,
    /// Its labels; `None` if it sees everything.
    labels: Option<Vec<&'static str>>,
    /// Its session at each agent, if it is an agent key.
    sessions: Option<[Session; 2]>,
}

impl Caller {
    fn sees(&self, labels: &[&str]) -> bool {
        let own = self.labels.as_ref();
        labels.is_empty() || own.is_none_or(|own| own.iter().any(|label| labels.contains(label)))
    }

    /// The slug and the key at the mixed agent (0) and at the twin (1).
    fn at(&self, agent: usize) -> (&str, Option<&str>) {
        ([MIXED, self.twin.as_str()][agent], self.keys.as_ref().map(|keys| keys[agent].as_str()))
    }
}

struct Twins {
    _database: Database,
    replicas: [Replica; 2],
    callers: Vec<Caller>,
    published: Published,
    random: StdRng,
    writes: usize,
}

/// The id and the text of a new key.
async fn issued(replica: &Replica, path: &str, body: Value) -> (String, String) {
    let made = replica.admin("POST", path, Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let text = |member: &str| made.json()[member].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

impl Twins {
    async fn new(seed: u64) -> Self {
        let database = database().await;
        let start = || Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start();
        let replicas = [start().await, start().await];
        let first = &replicas[0];
        for tenant in ["acme", "rival"] {
            first.tenant(tenant).await;
        }
        let agent = async |tenant: &str, slug: &str| {
            let tools = ["search", "resources", "prompts", "prompt_tools"];
            let body =
                json!({"id": slug, "tenant": tenant, "name": "same", "access": "public", "tools": tools});
            assert_eq!(first.admin("POST", "/agents", Some(body)).await.status, 201);
        };
        agent("acme", MIXED).await;
        agent("rival", "foreign").await;
        let own: [&[&str]; 5] = [&[], &["a"], &["b", "unused"], &["a", "b"], &["c", "b", "a"]];
        let mut callers = Vec::new();
        for number in 0..8 {
            let twin = format!("twin-{number}");
            agent("acme", &twin).await;
            let mut ids = Vec::new();
            let (keys, labels) = match number {
                0 => (None, Some(Vec::new())),
                1 => {
                    let (_, key) = issued(first, "/tenants/acme/keys", json!({})).await;
                    (Some([key.clone(), key]), None)
                }
                2 => {
                    let (_, key) = issued(first, "/agents/foreign/keys", json!({"labels": LABELS})).await;
                    (Some([key.clone(), key]), Some(Vec::new()))
                }
                _ => {
                    let labels = own[number - 3];
                    let key = async |slug: &str| {
                        issued(first, &format!("/agents/{slug}/keys"), json!({"labels": labels})).await
                    };
                    let ((id, mixed), (other, text)) = (key(MIXED).await, key(&twin).await);
                    ids.extend([id, other]);
                    (Some([mixed, text]), Some(labels.to_vec()))
                }
            };
            let mut sessions = None;
            // Owner keys are sent as bearer tokens only.
            if let (Some([mixed, other]), 2..) = (&keys, number) {
                let open = async |slug: &str, key: &str| Session::open(first, slug, key, "2025-11-25").await;
                sessions = Some([open(MIXED, mixed).await, open(&twin, other).await]);
            }
            callers.push(Caller { twin, keys, ids, labels, sessions });
        }
        Self {
            _database: database,
            replicas,
            callers,
            published: Published::default(),
            random: StdRng::seed_from_u64(seed),
            writes: 0,
        }
    }

    /// Changes some definitions, their labels included, in all agents.
    async fn write(&mut self) {
        self.writes += 1;
        self.published.change(&mut self.random, self.writes);
        let replica = &self.replicas[self.random.random_range(0..2)];
        // A key that gets or loses labels.
        let relabelled = self.random.random_range(0..3 * self.callers.len());
        if let Some(caller) = self.callers.get_mut(relabelled).filter(|caller| !caller.ids.is_empty()) {
            let most = self.random.random_range(0..=LABELS.len());
            let labels: Vec<_> = LABELS.sample(&mut self.random, most).copied().collect();
            for id in &caller.ids {
                let patched =
                    replica.admin("PATCH", &format!("/keys/{id}"), Some(json!({"labels": labels}))).await;
                assert_eq!(patched.status, 200, "{}", patched.text());
            }
            caller.labels = Some(labels);
        }
        let all = std::iter::once((MIXED, self.manifest(|_| true)));
        let twins = self
            .callers
            .iter()
            .map(|caller| (caller.twin.as_str(), self.manifest(|labels| caller.sees(labels))));
        for (slug, manifest) in all.chain(twins) {
            let answer = replica.admin("PUT", &format!("/agents/{slug}/manifest"), Some(manifest)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        for replica in &self.replicas {
            for caller in &self.callers {
                for label in std::iter::once(None).chain(LABELS.map(Some)) {
                    self.settle(replica, caller, label).await;
                }
            }
        }
    }

    /// Waits until a replica answers a caller by the last write, as the marker with a label shows.
    async fn settle(&self, replica: &Replica, caller: &Caller, label: Option<&str>) {
        let due = label.is_none_or(|label| caller.sees(&[label])).then(|| self.writes.to_string());
        let uri = label.map_or(MARKER.to_owned(), |label| format!("{MARKER}-{label}"));
        let read = message("resources/read", json!({"uri": uri}));
        for agent in [0, 1] {
            settled(async || {
                let answer = post(replica, caller.at(agent), &read).await.json();
                let text = answer["result"]["contents"][0]["text"].as_str();
                if text == due.as_deref() { Ok(()) } else { Err(answer.to_string()) }
            })
            .await;
        }
    }

    fn manifest(&self, sees: impl Fn(&[&str]) -> bool) -> Value {
        self.published.manifest(self.writes, sees)
    }

    /// Compares what a random caller is answered to a random step by both agents; returns how many answers.
    async fn compare(&mut self) -> usize {
        let step = Step::random(&mut self.random, self.writes);
        let caller = self.callers.choose(&mut self.random).unwrap();
        let replica = &self.replicas[self.random.random_range(0..2)];
        let is_modern = self.random.random_bool(0.5);
        match step {
            Step::Pages(list) => compare_pages(replica, caller, list, is_modern).await,
            Step::Subscription(uri) => compare_subscription(replica, caller, &uri).await,
            Step::Stream => compare_stream(replica, caller).await,
            Step::Request(method, params) => {
                let asked = (method, &params);
                let mixed = ask(replica, caller.at(0), asked, is_modern).await;
                assert_same(caller, asked, &mixed, &ask(replica, caller.at(1), asked, is_modern).await);
                1
            }
        }
    }
}

#[tokio::test]
async fn hidden_definitions_are_answered_as_if_not_registered() {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = setting("VERIFY_LABELS_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    let steps = setting("VERIFY_LABELS_STEPS").map_or(STEPS, |steps| usize::try_from(steps).unwrap());
    println!("VERIFY_LABELS_SEED={seed}");
    let mut twins = Twins::new(seed).await;
    let (mut compared, began) = (0, tokio::time::Instant::now());
    while compared < steps {
        twins.write().await;
        let due = compared + STEPS_PER_WRITE;
        while compared < due {
            compared += twins.compare().await;
        }
    }
    println!("{compared} answers of {} histories are the same, in {:?}", twins.writes, began.elapsed());
}
