//! A change reaches every subscriber on every replica, also when replicas, connections and the database fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{CatalogView, Client, Worker};
use crate::fixture::{AGENTS, Fixture, Subscriptions};
use crate::fleet::{Fleet, Urls};
use crate::ledger::Ledger;
use crate::recurring_faults::RecurringFaults;
use crate::support::cluster::database;
use crate::support::events::{EventSeal, event_seal};
use crate::support::proxy::Proxy;
use crate::writer::Writer;
use crate::{EXCLUSIVE, Profile, expected, legacy, modern, profile};

const REPLICAS: usize = 3;
/// The maximum time until every client has its first stream.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(3);
/// The maximum time after the end of all faults until every client has read what it was notified of.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

struct Soak {
    profile: Profile,
    fleet: Arc<Fleet>,
    ledger: Arc<Ledger>,
    fixture: Arc<Fixture>,
    faults: RecurringFaults,
    seal: EventSeal,
}

impl Soak {
    async fn start(profile: Profile) -> Self {
        let database = database().await;
        let proxies = [Proxy::before(&database.options).await, Proxy::before(&database.options).await];
        let url = |options: &sqlx::postgres::PgConnectOptions| {
            use sqlx::ConnectOptions;
            options.to_url_lossy().to_string()
        };
        let direct = || Urls { database: url(&database.options), listen: url(&database.options) };
        let mut urls: Vec<_> = (1..REPLICAS).map(|_| direct()).collect();
        urls.push(Urls { listen: url(&proxies[0].options), database: url(&proxies[1].options) });
        // A replica that cannot reach its database must refuse instead of answering from memory: otherwise a read after
        // a notification may be stale.
        let fleet = Arc::new(Fleet::start(urls, &[("WAGGLE_ACCESS__STALE_SECONDS", "0")]).await);
        let ledger = Arc::new(Ledger::default());
        let fixture = Arc::new(Fixture::make(&fleet).await);
        let seal = event_seal(&database).await;
        let faults = RecurringFaults {
            fleet: Arc::clone(&fleet),
            ledger: Arc::clone(&ledger),
            database,
            proxies: Arc::new(proxies),
        };
        Self { profile, fleet, ledger, fixture, faults, seal }
    }

    /// Starts the profile's number of clients of each era, which run until the set is dropped.
    fn clients(&self) -> (Vec<Arc<Client>>, JoinSet<()>) {
        let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..self.profile.streams {
            let legacy = self.client("legacy", number);
            tasks.spawn(legacy::run(self.worker(&legacy), number));
            let modern = self.client("modern", number);
            tasks.spawn(modern::run(self.worker(&modern), number));
            clients.extend([legacy, modern]);
        }
        (clients, tasks)
    }

    fn client(&self, era: &str, number: usize) -> Arc<Client> {
        // Starting with the last, so that the agents that are never written have clients with all kinds of
        // subscriptions.
        let agent = self.fixture.agents[AGENTS - 1 - number % AGENTS].clone();
        Arc::new(Client {
            name: format!("{era} {number} of {}", agent.slug),
            never_written: self.fixture.is_never_written(&agent),
            agent,
            subscriptions: Subscriptions::of(number),
            view: Mutex::new(CatalogView::default()),
            connected: AtomicBool::new(false),
            was_connected: AtomicBool::new(false),
            attempts: Mutex::default(),
        })
    }

    fn worker(&self, client: &Arc<Client>) -> Worker {
        Worker {
            client: Arc::clone(client),
            fleet: Arc::clone(&self.fleet),
            ledger: Arc::clone(&self.ledger),
            seal: self.seal.clone(),
            session: None,
        }
    }

    /// Writes, and once every client has a stream injects faults for the duration of the profile. Returns after the end
    /// of all faults.
    async fn run(&self, clients: &[Arc<Client>]) {
        let stop = CancellationToken::new();
        let writers = self.write(&stop);
        let began = Instant::now();
        while let Some(client) = clients.iter().find(|client| !client.was_connected.load(Ordering::Relaxed)) {
            assert!(
                began.elapsed() < CONNECT_TIMEOUT,
                "{} has no stream\n{}",
                client.name,
                self.ledger.refused.shown("refused")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("connected: {:.1} s", began.elapsed().as_secs_f64());
        let faults = self.faults.clone().begin(self.profile, &stop);
        tokio::time::sleep(self.profile.duration).await;
        stop.cancel();
        faults.join_all().await;
        writers.join_all().await;
    }

    fn write(&self, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..self.profile.writers {
            let writer = Writer {
                fleet: Arc::clone(&self.fleet),
                ledger: Arc::clone(&self.ledger),
                fixture: Arc::clone(&self.fixture),
            };
            tasks.spawn(writer.write(stop.clone()));
        }
        tasks
    }

    /// Waits until nothing is missed or the timeout is over; returns what is missed.
    async fn settle(&self, clients: &[Arc<Client>]) -> Vec<String> {
        let whole = Instant::now();
        loop {
            let expected = expected::views(&self.fleet, &self.fixture.agents).await;
            let missed = expected::missed(clients, &expected);
            if missed.is_empty() || whole.elapsed() > SETTLE_TIMEOUT {
                println!("settled: {:.1} s", whole.elapsed().as_secs_f64());
                return missed;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn print(&self, missed: usize) {
        let ledger = &self.ledger;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!("streams: {} legacy, {} modern", self.profile.streams, self.profile.streams);
        println!("writes: {}, {} in doubt", of(&ledger.writes), of(&ledger.unclear));
        println!("events: {}, {} reads after them", of(&ledger.events), of(&ledger.reads));
        println!("reconnects: {}", of(&ledger.reconnects));
        let (kills, cuts) = (of(&ledger.kills), of(&ledger.cuts));
        println!("kills: {kills}, cuts: {cuts}, swallowings: {}", of(&ledger.swallows));
        println!("stale: {}", ledger.stale.count());
        println!("refused: {}", ledger.refused.count());
        println!("missed: {missed}");
        println!("foreign: {}", ledger.foreign.count());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_subscriber_receives_the_last_change_despite_faults() {
    let _exclusive = EXCLUSIVE.lock().await;
    let soak = Soak::start(profile()).await;
    let (clients, tasks) = soak.clients();
    soak.run(&clients).await;
    let missed = soak.settle(&clients).await;
    drop(tasks);
    soak.print(missed.len());
    let ledger = &soak.ledger;
    let faults = [
        missed.iter().take(20).map(|missed| format!("missed: {missed}\n")).collect(),
        ledger.stale.shown("stale"),
        ledger.foreign.shown("foreign"),
        ledger.refused.shown("refused"),
    ]
    .concat();
    assert!(faults.is_empty(), "\n{faults}");
    let happened = [&ledger.writes, &ledger.events, &ledger.reconnects, &ledger.kills, &ledger.cuts];
    assert!(happened.iter().all(|counter| counter.load(Ordering::Relaxed) > 0), "no fault was injected");
}
