//! `replicas`: the cost of idle replicas on one database, and the latency of a change from the answer
//! of its write to the event at the first and at the last of them, each with one stream.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::cases::Era;
use crate::cpu::{self, Postgres};
use crate::database::Database;
use crate::error::Error;
use crate::first_use::forged_key;
use crate::fixture::WATCHED;
use crate::histogram::Histogram;
use crate::options::gateway_binary;
use crate::process::Process;
use crate::run::to_f64;
use crate::stream_client::StreamClient;
use crate::subscribers::Subscribers;
use crate::trigger::Trigger;
use crate::waggle::{self, Admin};

/// The timeout of a start; this many replicas start slowly on a machine of two cores.
const START: Duration = Duration::from_mins(5);
/// The pause after the start and after opening the streams, until the work that they cause has ended.
const SETTLES: Duration = Duration::from_secs(5);
/// Unmeasured changes before the measured ones.
const FIRST_CHANGES: u32 = 10;

/// How many replicas, and for how long.
#[derive(Args)]
pub(crate) struct Replicas {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Numbers of replicas to measure
    #[arg(long, value_delimiter = ',', default_value = "2,8,16,32")]
    sizes: Vec<usize>,
    /// How long the replicas are measured while idle, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Changes, one after another
    #[arg(long, default_value_t = 100)]
    changes: u32,
}

/// Totals of the used resources at one time.
struct Usage {
    at: Instant,
    transactions: u64,
    postgres: Duration,
    gateways: Duration,
}

/// The resources used in an interval.
struct Used {
    seconds: f64,
    transactions: f64,
    postgres_ms: f64,
    gateways_ms: f64,
}

/// Measures each size on a database of its own and prints a table.
///
/// # Errors
/// If a replica or the database cannot be run.
pub(crate) async fn run(options: &Replicas) -> Result<(), Error> {
    let binary = gateway_binary(options.waggle.as_ref())?;
    let print = |line: &str| io::stdout().write_all(line.as_bytes()).map_err(Error::io("write the report"));
    print(
        "| replicas | connections | idle, each a second: transactions | PostgreSQL ms | replica ms \
         | an event: transactions | PostgreSQL ms | replicas ms | events/s | first p50 ms | p99 | last p50 ms | p99 |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    )?;
    for size in &options.sizes {
        let folder = tempfile::tempdir().map_err(Error::io("make a folder"))?;
        let database = Database::start(folder.path()).await?;
        let mut fleet = Fleet { database, replicas: Vec::new() };
        let measured = fleet.measure(*size, &binary, folder.path(), options).await;
        for replica in fleet.replicas {
            replica.stop().await;
        }
        fleet.database.stop().await?;
        print(&measured?)?;
    }
    Ok(())
}

struct Fleet {
    database: Database,
    replicas: Vec<Process>,
}

impl Fleet {
    async fn measure(
        &mut self,
        size: usize,
        binary: &std::path::Path,
        dir: &std::path::Path,
        options: &Replicas,
    ) -> Result<String, Error> {
        let key = forged_key("wag", 1);
        for _ in 0..size {
            let mut replica = waggle::join(binary, dir, &key, &self.database.url())?;
            replica.ready("/readyz", true, START).await?;
            self.replicas.push(replica);
        }
        sleep(SETTLES).await;
        let idle = self.usage().await?;
        sleep(Duration::from_secs(options.seconds)).await;
        let idle = self.usage().await?.since(&idle);

        let first = self.replicas.first().ok_or(Error::NotRunning { server: "waggle" })?.port;
        let mut admin = Admin::open(first, &key).await?;
        admin.create_tenant().await?;
        let agent_key = admin.register(WATCHED).await?;
        let mut streams = Vec::new();
        for replica in &self.replicas {
            let (port, key) = (replica.port, agent_key.clone());
            streams.push(
                Subscribers::open(&StreamClient { server: "waggle", port, key, era: Some(Era::Modern) }, 1)
                    .await?,
            );
        }
        let mut trigger = Trigger::open("waggle", first, Some(admin.authorization)).await?;
        for _ in 0..FIRST_CHANGES {
            change(&mut trigger, &mut streams).await?;
        }
        sleep(SETTLES).await;
        let (mut soonest, mut latest) = (Histogram::new(), Histogram::new());
        let before = self.usage().await?;
        for _ in 0..options.changes {
            let (first, last) = change(&mut trigger, &mut streams).await?;
            soonest.record(first);
            latest.record(last);
        }
        let events = self.usage().await?.since(&before);
        let connections =
            self.database.number("select count(*) from pg_stat_activity where datname = 'waggle'");
        Ok(row(size, connections.await?, &idle, &events, f64::from(options.changes), [&soonest, &latest]))
    }

    async fn usage(&self) -> Result<Usage, Error> {
        let transactions = "select xact_commit from pg_stat_database where datname = 'waggle'";
        let transactions = self.database.number(transactions).await?;
        let server = self.database.server()?;
        let postgres = Postgres { server, data_dir: self.database.data() }.cpu();
        let gateways: Result<Duration, Error> =
            self.replicas.iter().map(|replica| cpu::of_process(replica.pid)).sum();
        Ok(Usage { at: Instant::now(), transactions, postgres, gateways: gateways? })
    }
}

impl Usage {
    fn since(&self, before: &Self) -> Used {
        Used {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            transactions: to_f64(self.transactions.saturating_sub(before.transactions)),
            postgres_ms: self.postgres.saturating_sub(before.postgres).as_secs_f64() * 1e3,
            gateways_ms: self.gateways.saturating_sub(before.gateways).as_secs_f64() * 1e3,
        }
    }
}

/// Makes a change; returns the latencies at which the first and the last stream received the event.
async fn change(trigger: &mut Trigger, streams: &mut [Subscribers]) -> Result<(Duration, Duration), Error> {
    let received = futures_util::future::try_join_all(streams.iter_mut().map(Subscribers::all_received));
    let ((_, answered), received) = tokio::try_join!(trigger.fire(), received)?;
    // An event that arrived before the answer counts as zero.
    let after = || received.iter().flatten().map(|received| received.saturating_duration_since(answered));
    Ok((after().min().unwrap_or_default(), after().max().unwrap_or_default()))
}

/// The resources of an event, less those that the replicas use while idle.
fn row(
    size: usize,
    connections: u64,
    idle: &Used,
    events: &Used,
    count: f64,
    received: [&Histogram; 2],
) -> String {
    let replicas = to_f64(size as u64);
    let each = |used: f64| used / idle.seconds / replicas;
    let event =
        |used: f64, idle_used: f64| (used - idle_used / idle.seconds * events.seconds).max(0.0) / count;
    let [first, last] = received.map(|of| [500, 990].map(|quantile| to_f64(of.quantile(quantile)) / 1e3));
    format!(
        "| {size} | {connections} | {:.1} | {:.2} | {:.2} | {:.0} | {:.1} | {:.1} | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |\n",
        each(idle.transactions),
        each(idle.postgres_ms),
        each(idle.gateways_ms),
        event(events.transactions, idle.transactions),
        event(events.postgres_ms, idle.postgres_ms),
        event(events.gateways_ms, idle.gateways_ms),
        count / events.seconds,
        first[0],
        first[1],
        last[0],
        last[1],
    )
}
