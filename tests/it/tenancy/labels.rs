//! Random labels on everything: an agent with hidden definitions answers each caller like a twin of it that only has what
//! the caller sees, on two replicas.
//!
//! `VERIFY_LABELS_STEPS` sets the number of compared answers; `VERIFY_LABELS_SEED` repeats a history.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::expected_state::settled;
use super::probes::{Probe, message, modern};
use crate::support::answers::exact;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::events::{Events, Session, try_listen};
use crate::support::http::Answer;

/// The number of compared answers without `VERIFY_LABELS_STEPS`.
const STEPS: usize = 3_000;
/// How many answers are compared between two writes.
const STEPS_PER_WRITE: usize = 60;

const LABELS: [&str; 3] = ["a", "b", "c"];
/// Of which those below `x:a/` and `y:` may also match templates.
const RESOURCES: [&str; 5] = ["x:1", "x:2", "x:a/1", "x:a/2", "y:1"];
const TEMPLATES: [&str; 4] = ["x:{v}", "x:a/{v}", "x:a/{+v}", "y:{+v}"];
const PROMPTS: [&str; 3] = ["embeds", "embeds-rendered", "plain"];
/// Registered by nobody; a template may answer the first two.
const OTHERS: [&str; 3] = ["x:9", "x:a/9/9", "z:9"];
/// A resource that everybody sees, and the beginning of one for each label; their text is the number of the last write.
const MARKER: &str = "marker:last";

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

/// A registered definition: the number of its last write, and its labels.
type Registered = (usize, Vec<&'static str>);

struct Twins {
    _database: Database,
    replicas: [Replica; 2],
    callers: Vec<Caller>,
    /// By list and key.
    definitions: BTreeMap<(&'static str, &'static str), Registered>,
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
            let tools = ["resources", "prompts", "prompt_tools"];
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
        let definitions = BTreeMap::new();
        Self {
            _database: database,
            replicas,
            callers,
            definitions,
            random: StdRng::seed_from_u64(seed),
            writes: 0,
        }
    }

    /// Changes some definitions, their labels included, in all agents.
    async fn write(&mut self) {
        self.writes += 1;
        for _ in 0..self.random.random_range(1..5) {
            let (list, keys): (_, &[_]) = match self.random.random_range(0..5) {
                0 => ("prompts", &PROMPTS),
                1 => ("templates", &TEMPLATES),
                _ => ("resources", &RESOURCES),
            };
            let key = *keys.choose(&mut self.random).unwrap();
            if self.random.random_ratio(1, 6) {
                self.definitions.remove(&(list, key));
            } else {
                let most = self.random.random_range(0..3);
                let labels: Vec<_> = LABELS.sample(&mut self.random, most).copied().collect();
                self.definitions.insert((list, key), (self.writes, labels));
            }
        }
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

    /// The manifest of the definitions with visible labels.
    fn manifest(&self, sees: impl Fn(&[&str]) -> bool) -> Value {
        let modified = json!({"lastModified": "2026-01-01T00:00:00Z"});
        let marker = |uri: &str, labels: &[&str]| {
            json!({
                "uri": uri, "name": "n", "annotations": modified, "labels": labels,
                "contents": [{"text": self.writes.to_string()}],
            })
        };
        let labelled = LABELS.into_iter().filter(|label| sees(&[label]));
        let labelled = labelled.map(|label| marker(&format!("{MARKER}-{label}"), &[label]));
        let mut resources: Vec<_> = std::iter::once(marker(MARKER, &[])).chain(labelled).collect();
        let (mut templates, mut prompts) = (Vec::new(), Vec::new());
        for ((list, key), (version, labels)) in
            self.definitions.iter().filter(|(_, (_, labels))| sees(labels))
        {
            let name = format!("{key} of write {version}");
            match *list {
                "resources" => resources.push(json!({
                    "uri": key, "name": name, "annotations": modified, "contents": [{"text": name}], "labels": labels,
                })),
                "templates" => templates.push(json!({
                    "uriTemplate": key, "name": name, "template": format!("{name}: {{{{ v }}}}"),
                    "completions": {"v": [name]}, "labels": labels,
                })),
                _ => {
                    let content = match *key {
                        "embeds" => json!({"type": "resource", "resource": {"uri": "x:1"}}),
                        "embeds-rendered" => json!({"type": "resource", "resource": {"uri": "x:a/2"}}),
                        _ => json!({"type": "text", "text": "{{ v }}"}),
                    };
                    prompts.push(json!({
                        "name": key, "title": name, "arguments": [{"name": "v", "completions": [name]}],
                        "messages": [{"role": "user", "content": content}], "labels": labels,
                    }));
                }
            }
        }
        json!({"apiVersion": "waggle/v1", "resources": resources, "templates": templates, "prompts": prompts})
    }

    /// Compares what a random caller is answered to a random request by both agents; returns how many answers.
    async fn compare(&mut self) -> usize {
        let random = &mut self.random;
        let caller = self.callers.choose(random).unwrap();
        let replica = &self.replicas[random.random_range(0..2)];
        let is_modern = random.random_bool(0.5);
        let uri = *[&RESOURCES[..], &OTHERS].concat().choose(random).unwrap();
        let prompt = *[&PROMPTS[..], &["absent"]].concat().choose(random).unwrap();
        let template = *[&TEMPLATES[..], &["absent:{v}"]].concat().choose(random).unwrap();
        let complete = |reference: Value| {
            ("completion/complete", json!({"ref": reference, "argument": {"name": "v", "value": ""}}))
        };
        let arguments = json!({"v": "one"});
        let tool =
            |name: &str, arguments: Value| ("tools/call", json!({"name": name, "arguments": arguments}));
        let (method, params) = match random.random_range(0..18) {
            0 | 1 => return compare_pages(replica, caller, List::Method("resources/list"), is_modern).await,
            2 => {
                return compare_pages(replica, caller, List::Method("resources/templates/list"), is_modern)
                    .await;
            }
            3 => return compare_pages(replica, caller, List::Method("prompts/list"), is_modern).await,
            4 => return compare_subscription(replica, caller, uri).await,
            5 => return compare_stream(replica, caller).await,
            6 => complete(json!({"type": "ref/prompt", "name": prompt})),
            7 => complete(json!({"type": "ref/resource", "uri": template})),
            8 => ("prompts/get", json!({"name": prompt, "arguments": arguments})),
            9 => return compare_pages(replica, caller, List::Method("tools/list"), is_modern).await,
            10 => return compare_pages(replica, caller, List::Tool("list_resources"), is_modern).await,
            11 => return compare_pages(replica, caller, List::Tool("list_prompts"), is_modern).await,
            12 => tool("get_prompt", json!({"name": prompt, "arguments": arguments})),
            13 => tool(prompt, arguments),
            14 => tool("read_resource", json!({"uri": uri})),
            _ => ("resources/read", json!({"uri": uri})),
        };
        let answers =
            [0, 1].map(async |agent| ask(replica, caller.at(agent), (method, &params), is_modern).await);
        let [mixed, twin] = answers;
        assert_same(caller, (method, &params), &mixed.await, &twin.await);
        1
    }
}

async fn post(replica: &Replica, (slug, key): (&str, Option<&str>), message: &Value) -> Answer {
    Probe::post("/{}/mcp", message).send(&replica.http, key, slug).await
}

async fn ask(
    replica: &Replica,
    (slug, key): (&str, Option<&str>),
    (method, params): (&'static str, &Value),
    is_modern: bool,
) -> Answer {
    if is_modern {
        modern(method, params.clone()).send(&replica.http, key, slug).await
    } else {
        post(replica, (slug, key), &message(method, params.clone())).await
    }
}

/// What has pages.
#[derive(Clone, Copy)]
enum List {
    Method(&'static str),
    Tool(&'static str),
}

impl List {
    fn page(self, cursor: Option<String>) -> (&'static str, Value) {
        let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
        match self {
            Self::Method(method) => (method, params),
            Self::Tool(tool) => ("tools/call", json!({"name": tool, "arguments": params})),
        }
    }
}

/// The cursor of the next page of a method or of a tool.
fn next_cursor(answer: &Value) -> Option<String> {
    let result = &answer["result"];
    let shown = || serde_json::from_str::<Value>(result["content"][0]["text"].as_str()?).ok();
    let cursor = result.get("nextCursor").cloned();
    let cursor = cursor.or_else(|| shown()?.get("nextCursor").cloned());
    cursor.map(|cursor| cursor.as_str().unwrap().to_owned())
}

/// The whole answer, with the position in the place of a cursor, whose seal differs between agents.
fn comparable(answer: &Answer) -> Value {
    let mut whole = exact(answer);
    if let Some(cursor) = next_cursor(&whole["body"]) {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        let position = std::str::from_utf8(&bytes[16..]).unwrap();
        whole = serde_json::from_str(&whole.to_string().replace(&cursor, position)).unwrap();
    }
    whole["length"] = json!(answer.body.len());
    whole
}

fn assert_same(caller: &Caller, asked: (&str, &Value), mixed: &Answer, twin: &Answer) {
    assert_eq!(comparable(mixed), comparable(twin), "{:?} asked {asked:?}", caller.labels);
}

async fn compare_pages(replica: &Replica, caller: &Caller, list: List, is_modern: bool) -> usize {
    let (mut cursors, mut pages) = ([None, None], 0);
    loop {
        let [(method, first), (_, second)] = cursors.map(|cursor| list.page(cursor));
        let mixed = ask(replica, caller.at(0), (method, &first), is_modern).await;
        let twin = ask(replica, caller.at(1), (method, &second), is_modern).await;
        assert_same(caller, (method, &first), &mixed, &twin);
        pages += 1;
        cursors = [mixed, twin].map(|answer| next_cursor(&answer.json()));
        if cursors[0].is_none() {
            return pages;
        }
    }
}

async fn compare_subscription(replica: &Replica, caller: &Caller, uri: &str) -> usize {
    let Some([mixed, twin]) = &caller.sessions else { return 0 };
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let params = json!({"uri": uri});
        let answers = [
            mixed.call(replica, method, params.clone()).await,
            twin.call(replica, method, params.clone()).await,
        ];
        assert_same(caller, (method, &params), &answers[0], &answers[1]);
    }
    2
}

/// The acknowledgement of a stream names the URIs that can be read.
async fn compare_stream(replica: &Replica, caller: &Caller) -> usize {
    if caller.sessions.is_none() {
        return 0;
    }
    let uris = [&RESOURCES[..], &OTHERS].concat();
    let acknowledged = async |agent| {
        let (slug, key) = caller.at(agent);
        let filter = json!({"resourceSubscriptions": uris});
        let opened = try_listen(replica, slug, key.unwrap(), json!(1), filter).await;
        Events::of(opened).next().await.unwrap().json()
    };
    assert_eq!(acknowledged(0).await, acknowledged(1).await, "{:?} listens", caller.labels);
    1
}

#[tokio::test]
async fn hidden_definitions_are_answered_as_if_nobody_registered_them() {
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
