//! The memory of clients that stop reading, and the events that they receive when they resume.
//!
//! The same streams of one gateway first read while everything changes repeatedly, and then stop reading while
//! everything changes again. The difference of the peak memory of both phases is the cost of streams that do not read:
//! everything else has reached its size in the first phase. Several streams are measured, since the noise of the
//! allocator is as large as the cost of one.
//!
//! Events that a connection accepted before it was full are also received: they are in the kernel's and the
//! connection's buffers, not in the dirty set. The last change of all separates them: the subjects in the dirty set are
//! received right before it, each once.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::resource;
use crate::fleet::{Fleet, Urls};
use crate::slow::SlowReader;
use crate::support::cluster::database;
use crate::{EXCLUSIVE, is_long};

const MODERN_READERS: usize = 8;
const LEGACY_READERS: usize = 2;
const READERS: usize = MODERN_READERS + LEGACY_READERS;
/// With the last one, which changes after all others, as many as a session may subscribe to.
const URIS: usize = 999;
const LAST: &str = "soak://last";
/// Long, so that buffers of connections contain few events.
const URI_BYTES: usize = 400;
/// The permitted memory of a stream that does not read, in KiB.
const MAX_COST_KIB: i64 = 1024;
/// The minimum number of rounds while streams read, before memory is compared.
const WARM_UP: u64 = 12;

struct Site {
    fleet: Fleet,
    key: String,
    uris: Vec<String>,
    round: u64,
}

impl Site {
    async fn start() -> Self {
        let database = database().await;
        let url = sqlx::ConnectOptions::to_url_lossy(&database.options).to_string();
        // One arena: with several, their sizes depend on the scheduling of threads.
        let settings = [("MALLOC_ARENA_MAX", "1")];
        let fleet = Fleet::start(vec![Urls { database: url.clone(), listen: url }], &settings).await;
        fleet.admin_retry("POST", "/tenants", Some(json!({"id": "t"}))).await;
        fleet.admin_retry("POST", "/agents", Some(json!({"id": "a", "tenant": "t"}))).await;
        let made = fleet.admin_retry("POST", "/agents/a/keys", Some(json!({}))).await;
        let key = made.json()["key"].as_str().unwrap().to_owned();
        let uri = |number| format!("soak://{number}/{}", "x".repeat(URI_BYTES));
        let mut site = Self { fleet, key, uris: (0..URIS).map(uri).collect(), round: 0 };
        site.change_all().await;
        site
    }

    /// Changes every resource but the last.
    async fn change_all(&mut self) {
        self.round += 1;
        let text = self.round.to_string();
        let mut resources: Vec<_> = self.uris.iter().map(|uri| resource(uri, "name", &text)).collect();
        resources.push(resource(LAST, "name", "last"));
        let manifest = json!({
            "apiVersion": "waggle/v1", "agent": "a", "resources": resources, "templates": [], "prompts": [],
        });
        let applied = self.fleet.admin_retry("PUT", "/agents/a/manifest", Some(manifest)).await;
        assert_eq!(applied.status, 200, "{}", applied.text());
    }

    /// Changes every resource but the last repeatedly; returns the peak memory, in KiB.
    async fn change_all_often(&mut self, times: u64, duration: Duration) -> i64 {
        let began = Instant::now();
        let mut most = 0;
        for done in 1..=times {
            self.change_all().await;
            most = most.max(self.memory().await);
            let due = duration.mul_f64(done as f64 / times as f64);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
        most
    }

    async fn change_last(&self) {
        let touch = format!("/agents/a/resources/touch?uri={}", crate::fleet::encode(LAST));
        assert_eq!(self.fleet.admin_retry("POST", &touch, None).await.status, 202);
    }

    async fn memory(&self) -> i64 {
        let status = read_to_string(format!("/proc/{}/status", self.fleet.pid(0).await)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    async fn readers(&self) -> Vec<SlowReader> {
        let port = self.fleet.port(0);
        let mut uris = self.uris.clone();
        uris.push(LAST.to_owned());
        let mut readers = Vec::new();
        for _ in 0..MODERN_READERS {
            readers.push(SlowReader::listen(port, "a", &self.key, &uris).await);
        }
        for _ in 0..LEGACY_READERS {
            let session = self.session(&uris).await;
            readers.push(SlowReader::resume(port, "a", &self.key, &session).await);
        }
        readers
    }

    /// A session of the revision with batches, subscribed to `uris`.
    async fn session(&self, uris: &[String]) -> String {
        let params = json!({
            "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"},
        });
        let open = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let session = self.post(&[], &open).await.session.unwrap();
        let subscribe = |uri: &String| {
            let params = json!({"uri": uri});
            json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": params})
        };
        for uris in uris.chunks(50) {
            let all: Value = uris.iter().map(subscribe).collect();
            let done = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
            let answers = self.post(&[("mcp-session-id", &session)], &all).await.json();
            assert_eq!(answers, Value::from(vec![done; uris.len()]));
        }
        session
    }

    async fn post(&self, more: &[(&str, &str)], body: &Value) -> crate::http::Answer {
        let mut headers = vec![("x-agent-api-key", self.key.as_str()), ("content-type", "application/json")];
        headers.extend_from_slice(more);
        let http = &self.fleet.http;
        http.send(self.fleet.port(0), "POST", "/a/mcp", &headers, body.to_string()).await.unwrap()
    }
}

/// Reads each stream until it receives the last change.
async fn read(readers: &mut [SlowReader]) -> Vec<Vec<String>> {
    futures_util::future::join_all(readers.iter_mut().map(|reader| reader.uris_before(LAST))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_reader_costs_its_dirty_set_and_receives_it_once() {
    let _exclusive = EXCLUSIVE.lock().await;
    let (rounds, duration) = if is_long() { (101, Duration::from_secs(60)) } else { (16, Duration::ZERO) };
    let mut site = Site::start().await;
    let before = site.memory().await;
    let mut readers = site.readers().await;
    let (_, reading) = tokio::join!(read(&mut readers), async {
        let most = site.change_all_often(rounds.max(WARM_UP), Duration::ZERO).await;
        site.change_last().await;
        most
    });

    let stopped = Instant::now();
    let most = site.change_all_often(rounds, duration).await;
    site.change_last().await;
    // Not for a condition: the set is complete once the last change is marked, which cannot be observed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopped = stopped.elapsed();

    let received = read(&mut readers).await;
    for received in &received {
        let (held_back, set) = received.split_at(received.len() - URIS);
        assert_eq!(set.iter().collect::<HashSet<_>>(), site.uris.iter().collect(), "each subject once");
        assert!(held_back.len() < URIS * rounds as usize / 2, "{} events were buffered", held_back.len());
    }
    for reader in &mut readers {
        assert!(reader.is_quiet(Duration::from_millis(100)).await);
    }
    let held_back: Vec<_> = received.iter().map(|received| received.len() - URIS).collect();
    let cost = (most - reading) / READERS as i64;
    println!("changes: {} while {READERS} readers stopped for {stopped:.0?}", rounds as usize * URIS);
    println!("received: {URIS} subjects once by each, after {held_back:?} buffered events");
    println!("memory: {before} KiB without streams, {reading} while they read, {most} while they do not");
    println!("cost: {cost} KiB per stream that does not read");
    assert!(cost < MAX_COST_KIB, "a stream that does not read costs {cost} KiB");
}
