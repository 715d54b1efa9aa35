//! One run: each case is measured at each server in turn, and so round after round.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::cpu;
use crate::error::Error;
use crate::fleet::{Fleet, Subject, subjects};
use crate::load::Load;
use crate::options::{Options, Server};
use crate::report::{Row, Sample};

/// Before each measurement the same load runs unmeasured for this long.
const WARM_UP: Duration = Duration::from_millis(500);

/// Starts the servers, measures, and stops the servers, whatever happens in between.
pub(crate) async fn run(options: &Options) -> Result<Vec<Row>, Error> {
    let dir = TempDir::with_prefix("waggle-bench-").map_err(Error::io("create a temporary directory"))?;
    // A database that leaves the privileges of root behind must still reach its directory in this one.
    fs::set_permissions(dir.path(), Permissions::from_mode(0o711))
        .map_err(Error::io("open the temporary directory"))?;
    let mut fleet = Fleet::default();
    let measured = async {
        fleet.start(options, dir.path()).await?;
        measure_all(&fleet, options).await
    };
    let outcome = tokio::select! {
        outcome = measured => outcome,
        () = interrupted() => Err(Error::Interrupted),
    };
    fleet.stop().await;
    outcome
}

async fn measure_all(fleet: &Fleet, options: &Options) -> Result<Vec<Row>, Error> {
    let each = || subjects().flat_map(|subject| options.servers().map(move |server| (subject, server)));
    let mut rows: Vec<Row> = each().map(|(subject, server)| Row::new(subject, server)).collect();
    for _ in 0..options.rounds {
        for (row, (subject, server)) in rows.iter_mut().zip(each()) {
            row.samples.extend(measure(fleet, options, subject, server).await?);
        }
    }
    Ok(rows)
}

/// One measurement; none where the server does not run.
async fn measure(
    fleet: &Fleet,
    options: &Options,
    subject: Subject,
    server: Server,
) -> Result<Option<Sample>, Error> {
    let Some((target, pid)) = fleet.target(server, subject) else {
        return Ok(None);
    };
    let mut load = Load::open(target, usize::from(options.connections)).await?;
    load.run(WARM_UP).await?;
    let before = Cpu::now(fleet, server, pid)?;
    let phase = load.run(options.duration()).await?;
    let after = Cpu::now(fleet, server, pid)?;
    let requests = phase.latencies.len();
    if requests == 0 {
        return Err(Error::NothingMeasured { seconds: options.duration().as_secs() });
    }
    let each = |later: Duration, earlier: Duration| micros(later.saturating_sub(earlier)) / to_f64(requests);
    Ok(Some(Sample {
        server_micros: each(after.server, before.server),
        postgres_micros: each(after.postgres, before.postgres),
        generator_micros: each(after.generator, before.generator),
        per_second: to_f64(requests) / phase.elapsed.as_secs_f64(),
        p50_micros: to_f64(phase.latencies.quantile(500)),
        p99_micros: to_f64(phase.latencies.quantile(990)),
    }))
}

/// CPU time used so far by everyone who takes part.
struct Cpu {
    server: Duration,
    postgres: Duration,
    generator: Duration,
}

impl Cpu {
    fn now(fleet: &Fleet, server: Server, pid: u32) -> Result<Self, Error> {
        Ok(Self {
            server: cpu::of_process(pid)?,
            postgres: fleet.postgres(server).map_or(Duration::ZERO, cpu::Postgres::cpu),
            generator: cpu::of_process(std::process::id())?,
        })
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Returns when the user or the system wants the run to end.
async fn interrupted() {
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
