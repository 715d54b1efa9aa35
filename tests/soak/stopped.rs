//! A replica that is stopped with `SIGSTOP` delays the events of the others once, by the time for which it may trust its
//! memory, and their writes not at all (ADR 0014).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::client::meta;
use crate::fixture::resource;
use crate::fleet::{Fleet, Urls, encode};
use crate::slow::SlowReader;
use crate::support::cluster::database;
use crate::{EXCLUSIVE, is_long};

const REPLICAS: usize = 3;
/// The one that is stopped.
const STOPPED: usize = 2;
const URI: &str = "soak://stopped";
/// The pause between two changes.
const EVERY: Duration = Duration::from_millis(200);
/// The time before and after.
const AROUND: Duration = Duration::from_secs(4);
/// How long an event may be delayed: half a second, twice `database.probe_ms`, and what a busy machine adds.
const BOUND: Duration = Duration::from_millis(2_500);
/// How many events may be delayed by more than half of it: those of the first change.
const DELAYED: usize = 4;

struct Site {
    fleet: Fleet,
    key: String,
    /// Streams of both eras on each of the other replicas.
    streams: Vec<SlowReader>,
    changes: usize,
}

/// How long the changes of a phase took.
#[derive(Debug, Default)]
struct Delays {
    changes: usize,
    longest_write: Duration,
    /// From when a change was sent until each stream had its event.
    events: Vec<Duration>,
}

impl Delays {
    fn print(&self, phase: &str) {
        let mut events = self.events.clone();
        events.sort();
        println!(
            "{phase}: {} changes, longest write {:?}; events: median {:?}, longest {:?}",
            self.changes,
            self.longest_write,
            events[events.len() / 2],
            events[events.len() - 1]
        );
    }
}

impl Site {
    async fn start() -> Self {
        let database = database().await;
        let url = sqlx::ConnectOptions::to_url_lossy(&database.options).to_string();
        let urls = (0..REPLICAS).map(|_| Urls { database: url.clone(), listen: url.clone() }).collect();
        let fleet = Fleet::start(urls, &[]).await;
        fleet.admin_retry("POST", "/tenants", Some(json!({"id": "t"}))).await;
        fleet.admin_retry("POST", "/agents", Some(json!({"id": "a", "tenant": "t"}))).await;
        let made = fleet.admin_retry("POST", "/agents/a/keys", Some(json!({}))).await;
        let key = made.json()["key"].as_str().unwrap().to_owned();
        let mut site = Self { fleet, key, streams: Vec::new(), changes: 0 };
        site.write(0, "first").await;
        for replica in 0..REPLICAS - 1 {
            let port = site.fleet.port(replica);
            site.streams.push(SlowReader::listen(port, "a", &site.key, &[URI.to_owned()]).await);
            let session = site.session(port).await;
            site.streams.push(SlowReader::resume(port, "a", &site.key, &session).await);
        }
        site
    }

    async fn session(&self, port: u16) -> String {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"},
        });
        let open = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let session = self.post(port, &[], &open).await.session.unwrap();
        let subscribe =
            json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": URI}});
        let answer = self.post(port, &[("mcp-session-id", &session)], &subscribe).await.json();
        assert_eq!(answer["result"], json!({}), "{answer}");
        session
    }

    async fn post(&self, port: u16, more: &[(&str, &str)], body: &serde_json::Value) -> crate::http::Answer {
        let mut headers = vec![("x-agent-api-key", self.key.as_str()), ("content-type", "application/json")];
        headers.extend_from_slice(more);
        self.fleet.http.send(port, "POST", "/a/mcp", &headers, body.to_string()).await.unwrap()
    }

    async fn write(&self, replica: usize, text: &str) {
        let path = format!("/agents/a/resources?uri={}", encode(URI));
        let json = [("content-type", "application/json")];
        let mut body = resource(URI, "name", text);
        body.as_object_mut().unwrap().remove("uri");
        let port = self.fleet.port(replica);
        let answer = self.fleet.admin(port, "PUT", &path, &json, body.to_string()).await.unwrap();
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    }

    /// Changes the resource on the other replicas in turn, for this time.
    async fn change_for(&mut self, duration: Duration) -> Delays {
        let (began, mut delays) = (Instant::now(), Delays::default());
        while began.elapsed() < duration {
            self.changes += 1;
            delays.changes += 1;
            let (sent, mut streams) = (Instant::now(), std::mem::take(&mut self.streams));
            let receiving = join_all(streams.iter_mut().map(async |stream| {
                stream.uris_before(URI).await;
                sent.elapsed()
            }));
            let writing = async {
                self.write(self.changes % (REPLICAS - 1), &self.changes.to_string()).await;
                sent.elapsed()
            };
            let (events, write) = tokio::join!(receiving, writing);
            self.streams = streams;
            delays.longest_write = delays.longest_write.max(write);
            delays.events.extend(events);
            tokio::time::sleep(EVERY).await;
        }
        delays
    }

    /// What the replica that was stopped answers.
    async fn read(&self) -> String {
        let params = json!({"uri": URI, "_meta": meta()});
        let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params});
        let headers = [
            ("mcp-protocol-version", crate::client::MODERN),
            ("mcp-method", "resources/read"),
            ("mcp-name", URI),
        ];
        let answer = self.post(self.fleet.port(STOPPED), &headers, &read).await.json();
        answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_replica_delays_the_others_once() {
    let _exclusive = EXCLUSIVE.lock().await;
    let stopped_for = Duration::from_secs(if is_long() { 60 } else { 5 });
    let mut site = Site::start().await;
    site.change_for(AROUND).await.print("before");
    let pid = Pid::from_raw(i32::try_from(site.fleet.pid(STOPPED).await).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let delays = site.change_for(stopped_for).await;
    kill(pid, Signal::SIGCONT).unwrap();
    // At once: the replica must know that its memory is old.
    assert_eq!(site.read().await, site.changes.to_string());
    delays.print("stopped");
    site.change_for(AROUND).await.print("after");

    let longest = delays.events.iter().max().unwrap();
    assert!(*longest < BOUND && delays.longest_write < BOUND, "{longest:?} {:?}", delays.longest_write);
    let delayed = delays.events.iter().filter(|delay| **delay > BOUND / 2).count();
    assert!(delayed <= DELAYED, "{delayed} of {}", delays.events.len());
}
