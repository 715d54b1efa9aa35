//! Acknowledged writes survive when processes are killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::app::{encode, resource};
use crate::support::folder::kill_hard;
use crate::support::process::{Site, ready_again};
use crate::support::wait::eventually;

const AGENTS: usize = 16;
const WRITES: usize = 5_000;
/// The gateway is killed after this many writes, and its database after this many.
const GATEWAY_DIES: usize = 1_700;
const DATABASE_DIES: usize = 3_400;

/// The only writer of one agent, and its record of writes, each to a URI of its own.
#[derive(Debug)]
struct Writer {
    agent: String,
    next: usize,
    /// The text and revision of each acknowledged write.
    acknowledged: BTreeMap<String, (String, i64)>,
    /// The text of each write whose outcome is unknown and that was not repeated.
    unknown: BTreeMap<String, String>,
    /// How often the gateway answered that its database is unavailable.
    refusals: usize,
}

/// The number of writes of all writers.
#[derive(Debug, Default)]
struct Progress(AtomicUsize);

impl Progress {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    async fn reaches(&self, count: usize) {
        eventually("the writers make progress", async || self.count() >= count).await;
    }
}

impl Writer {
    fn new(agent: String) -> Self {
        Self { agent, next: 0, acknowledged: BTreeMap::new(), unknown: BTreeMap::new(), refusals: 0 }
    }

    /// Writes until all writers together have made `goal` writes, or the gateway is down.
    async fn write(mut self, site: Arc<Site>, progress: Arc<Progress>, goal: usize) -> Self {
        let operator = site.operator();
        while progress.count() < goal {
            let uri = format!("test://{}/{}", self.agent, self.next);
            let text = format!("{} «{}»", self.agent, self.next.pow(3));
            self.next += 1;
            let Some(revision) = self.put(&site, &operator, &uri, &text).await else {
                self.unknown.insert(uri, text);
                break;
            };
            self.acknowledged.insert(uri, (text, revision));
            progress.0.fetch_add(1, Ordering::Relaxed);
        }
        self
    }

    /// Repeats a write until it is acknowledged; `None` if the gateway is down.
    async fn put(&mut self, site: &Site, operator: &str, uri: &str, text: &str) -> Option<i64> {
        let bearer = format!("Bearer {operator}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = format!("/admin/v1{}", resource(&self.agent, uri));
        let body = json!({"name": uri, "contents": [{"text": text}]}).to_string();
        loop {
            let answer = site.http.try_send("PUT", &path, &headers, body.clone()).await.ok()?;
            if answer.status.is_success() {
                return Some(answer.revision());
            }
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
            assert_eq!(answer.json()["code"], "storage_unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
            self.refusals += 1;
            // The database is down for a while; the client retries after a pause.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Compares the writer's record with the gateway's state.
    async fn check(self, site: Arc<Site>, owner: String) {
        let (mut texts, mut revisions) = (Vec::new(), Vec::new());
        for uri in self.listed(&site).await {
            let (text, revision) = self.read(&site, &uri).await;
            match self.acknowledged.get(&uri) {
                Some(written) => assert_eq!((&text, &revision), (&written.0, &written.1), "{uri}"),
                None => assert_eq!(self.unknown.get(&uri), Some(&text), "{uri}"),
            }
            texts.push((uri, text));
            revisions.push(revision);
        }
        revisions.sort_unstable();
        // The first revision created the agent, and each later one wrote to a URI of its own.
        assert_eq!(revisions, (2..).take(revisions.len()).collect::<Vec<_>>(), "{}", self.agent);
        let agent = site.admin("GET", &format!("/agents/{}", self.agent), None).await;
        assert_eq!(Some(agent.revision()), revisions.last().copied());
        let additional = revisions.len() - self.acknowledged.len();
        assert!(additional <= self.unknown.len(), "{additional} more resources exist than were written");
        self.check_endpoint(&site, &owner, &texts).await;
    }

    /// Compares the administration API with the agent's MCP endpoint.
    async fn check_endpoint(&self, site: &Site, owner: &str, texts: &[(String, String)]) {
        for texts in texts.chunks(50) {
            let read = |(uri, _): &(String, String)| json!({"jsonrpc": "2.0", "id": uri, "method": "resources/read", "params": {"uri": uri}});
            let response = |(uri, text): &(String, String)| json!({"jsonrpc": "2.0", "id": uri, "result": {"contents": [{"uri": uri, "text": text}]}});
            let answers =
                site.http.post_bearer(&self.agent, owner, &texts.iter().map(read).collect()).await.json();
            assert_eq!(answers, texts.iter().map(response).collect::<Value>());
        }
    }

    /// The URIs in the administration API, which must include all acknowledged ones.
    async fn listed(&self, site: &Site) -> Vec<String> {
        let mut uris = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/agents/{}/resources?limit=500{cursor}", self.agent);
            let page = site.admin("GET", &path, None).await.json();
            let items = page["items"].as_array().unwrap();
            uris.extend(items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={}", encode(next)),
                None => break,
            }
        }
        for uri in self.acknowledged.keys() {
            assert!(uris.contains(uri), "{uri} was acknowledged and is lost");
        }
        uris
    }

    async fn read(&self, site: &Site, uri: &str) -> (String, i64) {
        let answer = site.admin("GET", &resource(&self.agent, uri), None).await;
        assert_eq!(answer.json()["name"], uri);
        (answer.json()["contents"][0]["text"].as_str().unwrap().to_owned(), answer.revision())
    }
}

/// Runs every writer until `goal`, with `meanwhile` beside them.
async fn while_writing(
    site: &Arc<Site>,
    writers: Vec<Writer>,
    progress: &Arc<Progress>,
    goal: usize,
    meanwhile: impl Future<Output = ()>,
) -> Vec<Writer> {
    let mut tasks = JoinSet::new();
    for writer in writers {
        tasks.spawn(writer.write(Arc::clone(site), Arc::clone(progress), goal));
    }
    meanwhile.await;
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_killed_gateway_and_database() {
    let site = Arc::new(Site::unlimited());
    let gateway = site.serve().await;
    let mut writers: Vec<_> = (0..AGENTS).map(|n| Writer::new(format!("agent-{n}"))).collect();
    let owner = site.tenant("acme", writers.iter().map(|writer| writer.agent.clone())).await;
    let progress = Arc::new(Progress::default());

    writers = while_writing(&site, writers, &progress, usize::MAX, async {
        progress.reaches(GATEWAY_DIES).await;
        gateway.kill().await;
    })
    .await;
    let broken = count(&writers, |writer| writer.unknown.len());
    assert!(broken > 0, "the gateway was killed without a write in progress");

    let gateway = site.serve().await;
    println!("ready {:?} after a kill -9 of the gateway with {broken} writes in progress", gateway.start);
    let killed = site.folder.postmaster().unwrap();
    writers = while_writing(&site, writers, &progress, WRITES, async {
        progress.reaches(DATABASE_DIES).await;
        kill_hard(killed);
    })
    .await;
    ready_again(&site).await;
    let refusals = count(&writers, |writer| writer.refusals);
    println!("{refusals} writes were refused after a kill -9 of the database");
    assert!(refusals > 0, "the database was killed without a write in progress");
    assert_eq!(count(&writers, |writer| writer.unknown.len()), broken, "the gateway outlives its database");
    assert_ne!(site.folder.postmaster(), Some(killed));

    let mut checks = JoinSet::new();
    for writer in writers {
        checks.spawn(writer.check(Arc::clone(&site), owner.clone()));
    }
    checks.join_all().await;
    assert!(progress.count() >= WRITES);
    assert!(gateway.stop().await.success());
}

fn count(writers: &[Writer], of: impl Fn(&Writer) -> usize) -> usize {
    writers.iter().map(of).sum()
}
