//! What a reader costs that stops reading, and what it is told when it reads on.
//!
//! The same streams of one gateway first read along while everything changes again and again, and then stop while it does
//! so once more. The difference between the most memory that the gateway held in both times is what it costs that they
//! stopped: before, everything else had grown to its size. There are several of them, since an allocator's whims are as
//! large as what one of them costs.
//!
//! What a connection took in before it was full is told as well: that is kept by the kernel and by the connection's own
//! buffer, not by the set of what is dirty. Which events these are is known by the last change of all: what waits in the
//! set is told right before it, each subject once.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::{Fleet, Urls};
use crate::slow::Slow;
use crate::support::cluster::database;
use crate::world::resource;
use crate::{ALONE, is_long};

const MODERN_READERS: usize = 8;
const LEGACY_READERS: usize = 2;
const READERS: usize = MODERN_READERS + LEGACY_READERS;
/// With the last, which changes when all others have, as many as a session may subscribe to.
const URIS: usize = 999;
const LAST: &str = "soak://last";
/// Long, so that what connections hold back is few events.
const URI_BYTES: usize = 400;
/// What a reader that does not read may cost, in KiB.
const ALLOWED: i64 = 1024;
/// How often everything changes while they read, at least, before sizes are held against each other.
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
        // One arena: with several, which of them grows depends on who happens to run where.
        let settings = [("MALLOC_ARENA_MAX", "1")];
        let fleet = Fleet::start(vec![Urls { database: url.clone(), listen: url }], &settings).await;
        fleet.ask("POST", "/tenants", Some(json!({"id": "t"}))).await;
        fleet.ask("POST", "/agents", Some(json!({"id": "a", "tenant": "t"}))).await;
        let made = fleet.ask("POST", "/agents/a/keys", Some(json!({}))).await;
        let key = made.json()["key"].as_str().unwrap().to_owned();
        let uri = |number| format!("soak://{number}/{}", "x".repeat(URI_BYTES));
        let mut site = Self { fleet, key, uris: (0..URIS).map(uri).collect(), round: 0 };
        site.change_all().await;
        site
    }

    /// Changes everything but the last.
    async fn change_all(&mut self) {
        self.round += 1;
        let text = self.round.to_string();
        let mut resources: Vec<_> = self.uris.iter().map(|uri| resource(uri, "name", &text)).collect();
        resources.push(resource(LAST, "name", "last"));
        let manifest = json!({
            "apiVersion": "waggle/v1", "agent": "a", "resources": resources, "templates": [], "prompts": [],
        });
        let applied = self.fleet.ask("PUT", "/agents/a/manifest", Some(manifest)).await;
        assert_eq!(applied.status, 200, "{}", applied.text());
    }

    /// Changes everything but the last as often, and answers the most memory that was held, in KiB.
    async fn change_all_often(&mut self, times: u64, lasting: Duration) -> i64 {
        let began = Instant::now();
        let mut most = 0;
        for done in 1..=times {
            self.change_all().await;
            most = most.max(self.memory().await);
            let due = lasting.mul_f64(done as f64 / times as f64);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
        most
    }

    async fn change_last(&self) {
        let touch = format!("/agents/a/resources/touch?uri={}", crate::fleet::encode(LAST));
        assert_eq!(self.fleet.ask("POST", &touch, None).await.status, 202);
    }

    async fn memory(&self) -> i64 {
        let status = read_to_string(format!("/proc/{}/status", self.fleet.pid(0).await)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    async fn readers(&self) -> Vec<Slow> {
        let port = self.fleet.port(0);
        let mut uris = self.uris.clone();
        uris.push(LAST.to_owned());
        let mut readers = Vec::new();
        for _ in 0..MODERN_READERS {
            readers.push(Slow::listen(port, "a", &self.key, &uris).await);
        }
        for _ in 0..LEGACY_READERS {
            let session = self.session(&uris).await;
            readers.push(Slow::resume(port, "a", &self.key, &session).await);
        }
        readers
    }

    /// A session of the revision that has batches, subscribed to all of these.
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

/// Reads until everybody is told of the last change.
async fn read(readers: &mut [Slow]) -> Vec<Vec<String>> {
    futures_util::future::join_all(readers.iter_mut().map(|reader| reader.told_before(LAST))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_costs_its_set_and_is_told_of_each_subject_once() {
    let _alone = ALONE.lock().await;
    let (rounds, lasting) = if is_long() { (101, Duration::from_secs(60)) } else { (16, Duration::ZERO) };
    let mut site = Site::start().await;
    let before = site.memory().await;
    let mut readers = site.readers().await;
    let (_, reading) = tokio::join!(read(&mut readers), async {
        let most = site.change_all_often(rounds.max(WARM_UP), Duration::ZERO).await;
        site.change_last().await;
        most
    });

    let stopped = Instant::now();
    let most = site.change_all_often(rounds, lasting).await;
    site.change_last().await;
    // Not for a condition: the set is complete once the last change is marked, which nothing shows.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopped = stopped.elapsed();

    let told = read(&mut readers).await;
    for told in &told {
        let (held_back, set) = told.split_at(told.len() - URIS);
        assert_eq!(set.iter().collect::<HashSet<_>>(), site.uris.iter().collect(), "each subject once");
        assert!(held_back.len() < URIS * rounds as usize / 2, "{} were on their way", held_back.len());
    }
    for reader in &mut readers {
        assert!(reader.is_quiet(Duration::from_millis(100)).await);
    }
    let held_back: Vec<_> = told.iter().map(|told| told.len() - URIS).collect();
    let cost = (most - reading) / READERS as i64;
    println!("changes: {} while {READERS} readers stopped for {stopped:.0?}", rounds as usize * URIS);
    println!("told: {URIS} subjects once to each, after {held_back:?} events that were on their way");
    println!("memory: {before} KiB before them, {reading} while they read, {most} while they do not");
    println!("cost: {cost} KiB for each that does not read");
    assert!(cost < ALLOWED, "a reader that stops costs {cost} KiB");
}
