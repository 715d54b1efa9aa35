//! A revoked key is accepted for at most `access.stale_seconds` after the commit of its revocation, no matter what fails: a
//! random schedule of faults, and a checker.
//!
//! `VERIFY_FAULTS_SECONDS` sets the duration; `VERIFY_FAULTS_SEED` repeats a schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use serde_json::json;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::EXCLUSIVE;
use crate::fleet::{Fleet, Urls};
use crate::postgres::Servers;
use crate::support::faults::Fault;
use crate::support::proxy::Proxy;

const REPLICAS: usize = 3;
const REVOKERS: usize = 4;
/// `access.stale_seconds`.
const STALE: Duration = Duration::from_secs(5);
/// How long a revoked key is tried after the bound.
const AFTER: Duration = Duration::from_secs(3);
/// The default duration.
const SHORT: Duration = Duration::from_secs(20);
/// The maximum time after the end of all faults until all replicas are ready.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
const AGENT: &str = "a";

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The results of the checker.
#[derive(Debug, Default)]
struct Findings {
    /// Even while the database has one history; odd while an older state is restored. A revocation of another history
    /// may be lost, and is not checked.
    history: AtomicU64,
    revocations: AtomicU64,
    answers: AtomicU64,
    /// The longest time that a revoked key was accepted, in milliseconds.
    longest: AtomicU64,
    violations: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl Findings {
    fn history(&self) -> u64 {
        self.history.load(Ordering::SeqCst)
    }
}

/// Creates keys, revokes them, and tries them on every replica.
#[derive(Clone)]
struct Checker {
    fleet: Arc<Fleet>,
    findings: Arc<Findings>,
}

impl Checker {
    async fn check(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let history = self.findings.history();
            if history % 2 == 1 || self.check_one(history, &stop).await.is_none() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Creates, uses and revokes one key; `None` if a fault prevented it.
    async fn check_one(&self, history: u64, stop: &CancellationToken) -> Option<()> {
        let body = json!({"scopes": ["mcp"]}).to_string();
        let json = [("content-type", "application/json")];
        let path = format!("/agents/{AGENT}/keys");
        let made = self.fleet.admin(self.fleet.any(), "POST", &path, &json, body).await?;
        if made.status != 201 {
            return None;
        }
        let made = made.json();
        let (id, key) = (made["id"].as_str()?.to_owned(), made["key"].as_str()?.to_owned());
        for replica in 0..self.fleet.len() {
            // Replicas that are cut off now may read it later or never.
            self.read(replica, &key).await;
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..1_000))).await;
        let revoked = self.revoke(&id, history, stop).await?;
        self.findings.revocations.fetch_add(1, Ordering::Relaxed);
        self.watch(history, &key, revoked).await;
        Some(())
    }

    async fn read(&self, replica: usize, key: &str) -> Option<u16> {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
        let headers = [("x-agent-api-key", key), ("content-type", "application/json")];
        let port = self.fleet.port(replica);
        let answer = self.fleet.http.send(port, "POST", &format!("/{AGENT}/mcp"), &headers, message).await;
        answer.map(|answer| answer.status)
    }

    /// A time at which the revocation was certainly committed.
    async fn revoke(&self, id: &str, history: u64, stop: &CancellationToken) -> Option<Instant> {
        while self.findings.history() == history && !stop.is_cancelled() {
            let answer = self
                .fleet
                .admin(self.fleet.any(), "DELETE", &format!("/keys/{id}"), &[], String::new())
                .await;
            // 404 and 409 are answers after an attempt whose own answer was lost.
            if answer.is_some_and(|answer| [204, 404, 409].contains(&answer.status)) {
                return Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    async fn watch(&self, history: u64, key: &str, revoked: Instant) {
        let mut watching = JoinSet::new();
        for replica in 0..self.fleet.len() {
            let (checker, key) = (self.clone(), key.to_owned());
            watching.spawn(async move {
                while revoked.elapsed() < STALE + AFTER {
                    let sent = revoked.elapsed();
                    let status = checker.read(replica, &key).await;
                    if checker.findings.history() != history {
                        return;
                    }
                    checker.note(replica, sent, status);
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
            });
        }
        watching.join_all().await;
    }

    fn note(&self, replica: usize, sent: Duration, status: Option<u16>) {
        self.findings.answers.fetch_add(1, Ordering::Relaxed);
        if status != Some(200) {
            return;
        }
        let millis = u64::try_from(sent.as_millis()).unwrap();
        self.findings.longest.fetch_max(millis, Ordering::Relaxed);
        if sent > STALE {
            self.findings
                .violations
                .lock()
                .push(format!("replica {replica}: 200 {sent:?} after the revocation"));
        }
    }
}

/// The random schedule of faults.
struct Schedule {
    random: StdRng,
    fleet: Arc<Fleet>,
    findings: Arc<Findings>,
    servers: Servers,
    /// The proxies of each replica: of the LISTEN connection, and of the pool.
    proxies: Vec<[Proxy; 2]>,
    /// The target of new connections of the proxies.
    primary: watch::Sender<PgConnectOptions>,
    saved: bool,
}

impl Schedule {
    async fn run(&mut self, duration: Duration) {
        let began = Instant::now();
        while began.elapsed() < duration {
            self.sleep(200, 3_000).await;
            let kind = match self.random.random_range(0..100) {
                0..15 => self.cut().await,
                15..40 => self.fail(Fault::Swallowed).await,
                40..65 => self.fail(Fault::Refused).await,
                65..80 => self.pause().await,
                80..90 => self.restore().await,
                _ => self.fail_over().await,
            };
            *self.findings.faults.lock().entry(kind).or_default() += 1;
        }
    }

    async fn sleep(&mut self, least: u64, most: u64) {
        let millis = self.random.random_range(least..most);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    async fn cut(&mut self) -> &'static str {
        let all = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        self.servers.database().execute(all).await;
        "cut"
    }

    /// Some of the connections fail, sometimes for longer than memory may be answered.
    async fn fail(&mut self, fault: Fault) -> &'static str {
        for [listen, pool] in &self.proxies {
            for proxy in [listen, pool] {
                if self.random.random_bool(0.5) {
                    proxy.fail(fault);
                }
            }
        }
        self.sleep(200, 12_000).await;
        for proxy in self.proxies.iter().flatten() {
            proxy.fail(Fault::None);
        }
        if fault == Fault::Refused { "refused" } else { "swallowed" }
    }

    async fn pause(&mut self) -> &'static str {
        let replica = self.random.random_range(0..self.fleet.len());
        let pid = Pid::from_raw(i32::try_from(self.fleet.pid(replica).await).unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        self.sleep(200, 9_000).await;
        kill(pid, Signal::SIGCONT).unwrap();
        "paused"
    }

    /// Saves a copy of the database and, the next time, restores it.
    async fn restore(&mut self) -> &'static str {
        let database = self.servers.database();
        if !std::mem::replace(&mut self.saved, true) {
            database.save().await;
            return "saved";
        }
        self.saved = false;
        self.findings.history.fetch_add(1, Ordering::SeqCst);
        database.restore().await;
        self.findings.history.fetch_add(1, Ordering::SeqCst);
        "restored"
    }

    async fn fail_over(&mut self) -> &'static str {
        let lost = Duration::from_millis(self.random.random_range(0..2_000));
        self.findings.history.fetch_add(1, Ordering::SeqCst);
        self.servers.fail_over(lost).await;
        self.primary.send_replace(self.servers.database().options);
        self.findings.history.fetch_add(1, Ordering::SeqCst);
        self.servers.add_standby().await;
        "failed over"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_is_never_accepted_beyond_the_bound() {
    let _exclusive = EXCLUSIVE.lock().await;
    let duration = setting("VERIFY_FAULTS_SECONDS").map_or(SHORT, Duration::from_secs);
    let seed = setting("VERIFY_FAULTS_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("seed: {seed}, {duration:?}");
    let servers = Servers::start().await;
    let (primary, target) = watch::channel(servers.database().options);
    let mut proxies = Vec::new();
    for _ in 0..REPLICAS {
        proxies.push([Proxy::following(target.clone()).await, Proxy::following(target.clone()).await]);
    }
    let url = |proxy: &Proxy| proxy.options.to_url_lossy().to_string();
    let urls = proxies.iter().map(|[listen, pool]| Urls { listen: url(listen), database: url(pool) });
    let stale = STALE.as_secs().to_string();
    let settings =
        [("WAGGLE_ACCESS__STALE_SECONDS", stale.as_str()), ("WAGGLE_LIMITS__ADDRESS_PER_SECOND", "0")];
    let fleet = Arc::new(Fleet::start(urls.collect(), &settings).await);
    fleet.admin_retry("POST", "/tenants", Some(json!({"id": "acme"}))).await;
    fleet.admin_retry("POST", "/agents", Some(json!({"id": AGENT, "tenant": "acme"}))).await;

    let (findings, stop) = (Arc::new(Findings::default()), CancellationToken::new());
    let mut checkers = JoinSet::new();
    for _ in 0..REVOKERS {
        let checker = Checker { fleet: Arc::clone(&fleet), findings: Arc::clone(&findings) };
        checkers.spawn(checker.check(stop.clone()));
    }
    let random = StdRng::seed_from_u64(seed);
    let mut schedule = Schedule {
        random,
        fleet: Arc::clone(&fleet),
        findings: Arc::clone(&findings),
        servers,
        proxies,
        primary,
        saved: false,
    };
    schedule.run(duration).await;
    stop.cancel();
    checkers.join_all().await;
    let whole = Instant::now();
    for replica in 0..fleet.len() {
        while !fleet.is_ready(replica).await {
            assert!(whole.elapsed() < SETTLE_TIMEOUT, "replica {replica}: {}", fleet.log(replica));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    schedule.servers.stop().await;
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!("faults: {:?}", findings.faults.lock());
    println!("revocations: {}, answers: {}", of(&findings.revocations), of(&findings.answers));
    println!("longest accepted: {} ms of {} ms", of(&findings.longest), STALE.as_millis());
    let violations = findings.violations.lock();
    println!("violations: {}", violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(of(&findings.revocations) > 0, "nothing was checked");
}
