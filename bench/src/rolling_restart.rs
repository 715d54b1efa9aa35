//! `rolling-restart`: replicas behind a load balancer that are restarted one after another while requests with many keys
//! arrive on a fixed schedule. No request may fail.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::cases::read;
use crate::error::Error;
use crate::open_loop::{Results, Schedule, Second};
use crate::population::{self, Group};
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::svg::{self, Axis, Chart, Line, Scale};

const RESOURCES: usize = 10;
const BYTES: usize = 1024;
/// The default of the gateway; the other benchmarks do not drain.
const DRAIN: [(&str, &str); 1] = [("WAGGLE_SERVER__DRAIN_SECONDS", "5")];

/// The replicas and the load.
#[derive(Args)]
pub(crate) struct RollingRestart {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Replicas
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Keys in use, ten for each agent
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..))]
    keys: u32,
    /// Requests per second
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The time before the first restart, in seconds: each replica should have used each key
    #[arg(long, default_value_t = 20)]
    warm: u64,
    /// The time after each restart, in seconds
    #[arg(long, default_value_t = 10)]
    pause: u64,
    /// Draw the latencies over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Something that happened, in seconds since the begin of the load.
struct Event {
    at: f64,
    name: String,
}

/// Measures and prints a table.
///
/// # Errors
/// If a request fails, or a replica or the database cannot be run.
pub(crate) async fn run(options: &RollingRestart) -> Result<(), Error> {
    let keys = usize::try_from(options.keys).unwrap_or(usize::MAX);
    let group = Group { prefix: "rolling", agents: keys / 10, resources: RESOURCES, keys, bytes: BYTES };
    let (events, results) = site::measured(options.waggle.as_ref(), async |site| {
        population::write(site, std::slice::from_ref(&group)).await?;
        let mut ports = Vec::new();
        for _ in 0..options.replicas {
            ports.push(site.start(&DRAIN).await?);
        }
        let stop = AtomicBool::new(false);
        let schedule = Schedule { ports: &ports, per_second: options.rate };
        let load = schedule.send(&stop, |number, port| {
            let key = usize::try_from(number).unwrap_or_default() % group.keys;
            let uri = format!("x:{}", key % RESOURCES + 1);
            read(&group.agent(key), &uri, port, &group.key(key))
        });
        let restarts = async {
            let events = restart_each(site, &ports, options).await;
            stop.store(true, Ordering::Relaxed);
            events
        };
        tokio::try_join!(restarts, load)
    })
    .await?;
    let report = report(&events, &results, options);
    io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
    if let Some(file) = &options.svg {
        fs::write(file, svg::document(&[chart(&events, &results)])).map_err(Error::io("write the curves"))?;
    }
    match results.failed() {
        0 => Ok(()),
        failed => Err(Error::RequestsFailed(failed)),
    }
}

/// Stops each replica, waits until it has exited, and starts it again on the same port.
async fn restart_each(site: &mut Site, ports: &[u16], options: &RollingRestart) -> Result<Vec<Event>, Error> {
    let began = Instant::now();
    let event = |name: String| Event { at: began.elapsed().as_secs_f64(), name };
    let mut events = Vec::new();
    sleep(Duration::from_secs(options.warm)).await;
    for (nth, port) in ports.iter().enumerate() {
        let nth = nth + 1;
        events.push(event(format!("stop {nth}")));
        // The first is the one that has run longest: each start appends.
        let oldest = site.gateways.remove(0);
        let exited = oldest.stop().await;
        if !exited {
            return Err(Error::NotStopped { server: "waggle" });
        }
        events.push(event(format!("start {nth}")));
        site.start_at(*port, &DRAIN).await?;
        events.push(event(format!("ready {nth}")));
        sleep(Duration::from_secs(options.pause)).await;
    }
    Ok(events)
}

fn report(events: &[Event], results: &Results, options: &RollingRestart) -> String {
    let millis = |micros: u64| to_f64(micros) / 1e3;
    let row = |(nth, second): (usize, &Second)| {
        let from = to_f64(nth as u64);
        let now = events.iter().filter(|event| (from..from + 1.0).contains(&event.at));
        let [p50, p99] = [500, 990].map(|quantile| millis(second.latencies.quantile(quantile)));
        format!(
            "| {nth} | {} | {} | {} | {p50:.1} | {p99:.1} |\n",
            now.map(|event| event.name.as_str()).collect::<Vec<_>>().join(", "),
            second.latencies.len(),
            second.failed,
        )
    };
    let rows: String = results.seconds.iter().enumerate().map(row).collect();
    let reason = |(reason, count): (&String, &u64)| format!("\n{count} failed: {reason}\n");
    let reasons: String = results.reasons.iter().map(reason).collect();
    let all = results.latencies();
    format!(
        "{} replicas restarted one after another, {} requests a second on a fixed schedule, {} keys\n\n\
         | second | event | answered | failed | p50 ms | p99 ms |\n|--:|---|--:|--:|--:|--:|\n{rows}\n\
         | answered | failed | p50 ms | p99 ms |\n|--:|--:|--:|--:|\n| {} | {} | {:.1} | {:.1} |\n{reasons}",
        options.replicas,
        options.rate,
        options.keys,
        all.len(),
        results.failed(),
        millis(all.quantile(500)),
        millis(all.quantile(990)),
    )
}

fn chart(events: &[Event], results: &Results) -> Chart {
    let line = |name: &str, quantile| Line {
        name: name.to_owned(),
        points: (results.seconds.iter().enumerate())
            .map(|(nth, second)| (to_f64(nth as u64), to_f64(second.latencies.quantile(quantile)) / 1e3))
            .collect(),
    };
    // A start is next to its stop or to its readiness.
    let marks = events.iter().filter(|event| !event.name.starts_with("start"));
    Chart {
        title: "Latency during a rolling restart",
        x: Axis { label: "seconds", scale: Scale::Linear },
        y: Axis { label: "ms", scale: Scale::Logarithmic },
        lines: vec![line("p50", 500), line("p99", 990)],
        marks: marks.map(|event| (event.at, event.name.clone())).collect(),
    }
}
