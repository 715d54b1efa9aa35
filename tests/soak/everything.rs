//! A change reaches every subscriber on every replica, whatever fails meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chaos::Chaos;
use crate::client::{Client, Seen, Worker};
use crate::fleet::{Fleet, Urls};
use crate::ledger::Ledger;
use crate::support::cluster::database;
use crate::support::proxy::Proxy;
use crate::world::{AGENTS, Wish, World};
use crate::writer::Writer;
use crate::{ALONE, Form, form, legacy, modern, truth};

const REPLICAS: usize = 3;
/// The longest until every client has its first stream.
const CONNECTS: Duration = Duration::from_mins(3);
/// The longest, from when everything is whole again, until everybody has read what he was told of.
const SETTLES: Duration = Duration::from_secs(20);

struct Soak {
    form: Form,
    fleet: Arc<Fleet>,
    ledger: Arc<Ledger>,
    world: Arc<World>,
    chaos: Chaos,
}

impl Soak {
    async fn start(form: Form) -> Self {
        let database = database().await;
        let proxies = [Proxy::before(&database.options).await, Proxy::before(&database.options).await];
        let url = |options: &sqlx::postgres::PgConnectOptions| {
            use sqlx::ConnectOptions;
            options.to_url_lossy().to_string()
        };
        let direct = || Urls { database: url(&database.options), listen: url(&database.options) };
        let mut urls: Vec<_> = (1..REPLICAS).map(|_| direct()).collect();
        urls.push(Urls { listen: url(&proxies[0].options), database: url(&proxies[1].options) });
        // A replica that cannot ask its database says so, rather than what it remembers: only then can whoever is told
        // of a change be sure to read it.
        let fleet = Arc::new(Fleet::start(urls, &[("WAGGLE_ACCESS__STALE_SECONDS", "0")]).await);
        let ledger = Arc::new(Ledger::default());
        let world = Arc::new(World::make(&fleet).await);
        let chaos = Chaos {
            fleet: Arc::clone(&fleet),
            ledger: Arc::clone(&ledger),
            database,
            proxies: Arc::new(proxies),
        };
        Self { form, fleet, ledger, world, chaos }
    }

    /// Has as many clients of each era as the form says, which live until the set is dropped.
    fn clients(&self) -> (Vec<Arc<Client>>, JoinSet<()>) {
        let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..self.form.streams {
            let legacy = self.client("legacy", number);
            tasks.spawn(legacy::live(self.worker(&legacy), number));
            let modern = self.client("modern", number);
            tasks.spawn(modern::live(self.worker(&modern), number));
            clients.extend([legacy, modern]);
        }
        (clients, tasks)
    }

    fn client(&self, era: &str, number: usize) -> Arc<Client> {
        // From the last on, so that those to whom nobody writes have clients in every form.
        let agent = self.world.agents[AGENTS - 1 - number % AGENTS].clone();
        Arc::new(Client {
            name: format!("{era} {number} of {}", agent.slug),
            still: self.world.is_still(&agent),
            agent,
            wish: Wish::of(number),
            seen: Mutex::new(Seen::default()),
            connected: AtomicBool::new(false),
            began: AtomicBool::new(false),
            attempts: Mutex::default(),
        })
    }

    fn worker(&self, client: &Arc<Client>) -> Worker {
        Worker {
            client: Arc::clone(client),
            fleet: Arc::clone(&self.fleet),
            ledger: Arc::clone(&self.ledger),
            session: None,
        }
    }

    /// Writes, and once every client has a stream tears down for as long as the form says; afterwards everything is
    /// whole.
    async fn rage(&self, clients: &[Arc<Client>]) {
        let stop = CancellationToken::new();
        let writers = self.write(&stop);
        let began = Instant::now();
        while let Some(client) = clients.iter().find(|client| !client.began.load(Ordering::Relaxed)) {
            assert!(
                began.elapsed() < CONNECTS,
                "{} has no stream\n{}",
                client.name,
                self.ledger.refused.shown("refused")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("connected: {:.1} s", began.elapsed().as_secs_f64());
        let chaos = self.chaos.clone().begin(self.form, &stop);
        tokio::time::sleep(self.form.lasts).await;
        stop.cancel();
        chaos.join_all().await;
        writers.join_all().await;
    }

    fn write(&self, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..self.form.writers {
            let writer = Writer {
                fleet: Arc::clone(&self.fleet),
                ledger: Arc::clone(&self.ledger),
                world: Arc::clone(&self.world),
            };
            tasks.spawn(writer.write(stop.clone()));
        }
        tasks
    }

    /// What was missed, once nothing is, or when the time for it is over.
    async fn settle(&self, clients: &[Arc<Client>]) -> Vec<String> {
        let whole = Instant::now();
        loop {
            let truth = truth::truth(&self.fleet, &self.world.agents).await;
            let missed = truth::missed(clients, &truth);
            if missed.is_empty() || whole.elapsed() > SETTLES {
                println!("settled: {:.1} s", whole.elapsed().as_secs_f64());
                return missed;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn print(&self, missed: usize) {
        let ledger = &self.ledger;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!("streams: {} legacy, {} modern", self.form.streams, self.form.streams);
        println!("writes: {}, {} without an answer", of(&ledger.writes), of(&ledger.unclear));
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
async fn every_subscriber_is_told_of_the_last_change_whatever_is_torn_down() {
    let _alone = ALONE.lock().await;
    let soak = Soak::start(form()).await;
    let (clients, tasks) = soak.clients();
    soak.rage(&clients).await;
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
    assert!(happened.iter().all(|counter| counter.load(Ordering::Relaxed) > 0), "nothing was torn down");
}
