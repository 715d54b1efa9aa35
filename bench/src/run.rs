//! One run: in each round, each case is measured at all servers in turns.

use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::baseline::{Baseline, Behind};
use crate::cpu::{self, Postgres};
use crate::descriptors;
use crate::error::Error;
use crate::fleet::{Fleet, Subject, subjects};
use crate::histogram::Histogram;
use crate::load::Load;
use crate::options::{Options, Server};
use crate::report::{Row, Sample};
use crate::streams::{self, Streams};
use crate::waggle::allow_passage;
use crate::writes::{self, Writes};

/// The duration of the same load before each round, unmeasured.
const WARM_UP: Duration = Duration::from_millis(300);
/// The number of turns of a measurement: what else the machine does then affects all servers equally.
const TURNS: u32 = 6;

/// How often the cases above the tolerance are measured again, with as many rounds each time.
const RETRIES: u32 = 2;

/// The results of a run.
pub(crate) struct Results {
    pub(crate) reads: Vec<Row>,
    pub(crate) writes: Option<Writes>,
    pub(crate) streams: Option<Streams>,
    /// Reads whose ratios are above the tolerance.
    pub(crate) behind: Vec<Behind>,
}

/// Starts the servers, measures, and stops the servers, also after an error.
pub(crate) async fn run(options: &Options) -> Result<Results, Error> {
    let descriptors = descriptors::raise();
    let dir = TempDir::with_prefix("waggle-bench-").map_err(Error::io("create a temporary directory"))?;
    allow_passage(dir.path())?;
    let mut fleet = Fleet::default();
    let measured = async {
        fleet.start(options, dir.path()).await?;
        let mut reads =
            if options.measures_reads() { measure_all(&fleet, options).await? } else { Vec::new() };
        let behind = measure_again(&fleet, options, &mut reads).await?;
        let waggle = fleet.waggle().filter(|_| options.measures_writes());
        let writes = match waggle {
            Some(waggle) => Some(writes::measure(waggle, options, dir.path()).await?),
            None => None,
        };
        let streams = if options.measures_streams() {
            Some(streams::measure(fleet.waggle(), options, dir.path(), descriptors).await?)
        } else {
            None
        };
        Ok(Results { reads, writes, streams, behind })
    };
    let outcome = tokio::select! {
        outcome = measured => outcome,
        () = interrupted() => Err(Error::Interrupted),
    };
    fleet.stop().await;
    outcome
}

async fn measure_all(fleet: &Fleet, options: &Options) -> Result<Vec<Row>, Error> {
    let each = subjects().flat_map(|subject| options.servers().map(move |server| (subject, server)));
    let mut rows: Vec<Row> = each.map(|(subject, server)| Row::new(subject, server)).collect();
    for _ in 0..options.rounds {
        for (rows, subject) in rows.chunks_mut(options.servers().count()).zip(subjects()) {
            let samples = round(fleet, options, subject).await?;
            rows.iter_mut().zip(samples).for_each(|(row, sample)| row.samples.push(sample));
        }
    }
    Ok(rows)
}

/// Measures the cases above the tolerance again, since another program may have caused it; returns those that still
/// are.
async fn measure_again(fleet: &Fleet, options: &Options, rows: &mut [Row]) -> Result<Vec<Behind>, Error> {
    let Some(path) = &options.check else { return Ok(Vec::new()) };
    let baseline = Baseline::read(path)?;
    let mut behind = baseline.behind(rows);
    for _ in 0..RETRIES {
        for subject in subjects() {
            let is_behind = |row: &Row| row.is_of(subject) && behind.iter().any(|case| case.is(row));
            if !rows.iter().any(is_behind) {
                continue;
            }
            for _ in 0..options.rounds {
                let samples = round(fleet, options, subject).await?;
                let rows = rows.iter_mut().filter(|row| row.is_of(subject));
                rows.zip(samples).for_each(|(row, sample)| row.samples.push(sample));
            }
        }
        behind = baseline.behind(rows);
    }
    Ok(behind)
}

/// Measures one subject once at every server, in turns; returns a sample per server.
async fn round(fleet: &Fleet, options: &Options, subject: Subject) -> Result<Vec<Sample>, Error> {
    let mut server_runs = Vec::new();
    for server in options.servers() {
        let mut server_run = ServerRun::new(fleet, options, subject, server).await?;
        server_run.load.run(WARM_UP).await?;
        server_runs.push(server_run);
    }
    for _ in 0..TURNS {
        for server_run in &mut server_runs {
            server_run.take_turn(options.duration() / TURNS).await?;
        }
    }
    server_runs.iter().map(ServerRun::sample).collect()
}

/// One server in a round, with the totals of its turns so far.
struct ServerRun<'a> {
    pid: u32,
    postgres: Option<&'a Postgres>,
    load: Load,
    used: Usage,
    latencies: Histogram,
    elapsed: Duration,
}

impl<'a> ServerRun<'a> {
    async fn new(
        fleet: &'a Fleet,
        options: &Options,
        subject: Subject,
        server: Server,
    ) -> Result<Self, Error> {
        let (target, pid) =
            fleet.target(server, subject).ok_or(Error::NotRunning { server: server.name() })?;
        Ok(Self {
            pid,
            postgres: fleet.postgres(server),
            load: Load::open(target, usize::from(options.connections)).await?,
            used: Usage::default(),
            latencies: Histogram::new(),
            elapsed: Duration::ZERO,
        })
    }

    async fn take_turn(&mut self, duration: Duration) -> Result<(), Error> {
        let before = Usage::now(self.pid, self.postgres)?;
        let phase = self.load.run(duration).await?;
        self.used.add(&Usage::now(self.pid, self.postgres)?, &before);
        self.latencies.merge(&phase.latencies);
        self.elapsed += phase.elapsed;
        Ok(())
    }

    fn sample(&self) -> Result<Sample, Error> {
        let requests = self.latencies.len();
        if requests == 0 {
            return Err(Error::NothingMeasured { seconds: self.elapsed.as_secs() });
        }
        let per_request = |used: Duration| used.as_secs_f64() * 1e6 / to_f64(requests);
        Ok(Sample {
            server_micros: per_request(self.used.server),
            postgres_micros: per_request(self.used.postgres),
            generator_micros: per_request(self.used.generator),
            others_cores: self.used.others().as_secs_f64() / self.elapsed.as_secs_f64(),
            per_second: to_f64(requests) / self.elapsed.as_secs_f64(),
            p50_micros: to_f64(self.latencies.quantile(500)),
            p99_micros: to_f64(self.latencies.quantile(990)),
        })
    }
}

/// CPU time by process.
#[derive(Default)]
struct Usage {
    server: Duration,
    postgres: Duration,
    generator: Duration,
    machine: Duration,
}

impl Usage {
    /// The totals so far.
    fn now(pid: u32, postgres: Option<&Postgres>) -> Result<Self, Error> {
        Ok(Self {
            server: cpu::of_process(pid)?,
            postgres: postgres.map_or(Duration::ZERO, Postgres::cpu),
            generator: cpu::of_process(std::process::id())?,
            machine: cpu::of_machine()?,
        })
    }

    /// Adds the difference of two totals.
    fn add(&mut self, after: &Self, before: &Self) {
        self.server += after.server.saturating_sub(before.server);
        self.postgres += after.postgres.saturating_sub(before.postgres);
        self.generator += after.generator.saturating_sub(before.generator);
        self.machine += after.machine.saturating_sub(before.machine);
    }

    /// The CPU time of programs outside of the run.
    fn others(&self) -> Duration {
        self.machine.saturating_sub(self.server + self.postgres + self.generator)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Returns at `SIGINT` or `SIGTERM`.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
