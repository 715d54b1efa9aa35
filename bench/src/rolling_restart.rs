//! `rolling-restart`: replicas behind a load balancer that are restarted one after another while requests with many keys
//! arrive on a fixed schedule, and streams listen. No request may fail, and no event may be lost.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::balancer::{self, Balancer};
use crate::cases::read;
use crate::error::Error;
use crate::first_use::forged_key;
use crate::open_loop::{Results, Schedule, Second};
use crate::options::gateway_binary;
use crate::population::{self, Group};
use crate::resuming::{self, Outcome, Resuming, Target};
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::svg::{self, Axis, Chart, Line, Scale};

const RESOURCES: usize = 10;
const BYTES: usize = 1024;
/// Draining is the default of the gateway; the other benchmarks do not drain.
const SETTINGS: [(&str, &str); 2] =
    [("WAGGLE_SERVER__DRAIN_SECONDS", "5"), ("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")];
/// The longest break of a stream that is accepted.
const BREAK: Duration = Duration::from_secs(2);

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
    /// The binary that the replicas run before they are restarted, such as the previous release [default: the same]
    #[arg(long, value_name = "BINARY")]
    from: Option<PathBuf>,
    /// The load balancer of `deploy/` that the requests go through, instead of one that this program contains
    #[arg(long, value_enum)]
    balancer: Option<Balancer>,
    /// Streams through the load balancer, half of them in each era
    #[arg(long, default_value_t = 0, requires = "balancer")]
    streams: usize,
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
    let watched = Group { prefix: "watched", agents: 1, resources: resuming::RESOURCES, keys: 1, bytes: 64 };
    let (began, events, results, streams, passed_on) =
        site::measured(options.waggle.as_ref(), async |site| {
            let groups = [group, watched];
            population::write(site, &groups).await?;
            let [group, watched] = groups;
            let mut ports = Vec::new();
            // The schema is that of the binary which they are restarted with.
            let newer = site.binary.clone();
            site.binary = gateway_binary(Some(options.from.as_ref().unwrap_or(&newer)))?;
            for _ in 0..options.replicas {
                ports.push(site.start(&SETTINGS).await?);
            }
            site.binary = newer;
            let balancer = match options.balancer {
                Some(balancer) => Some(balancer.start(&ports, site.dir.path()).await?),
                None => None,
            };
            let entries = balancer.as_ref().map_or_else(|| ports.clone(), |balancer| vec![balancer.port]);
            let authorization = format!("Bearer {}", forged_key("wag", 1));
            let target = Target { port: entries[0], group: watched, authorization };
            let mut streams = Resuming::open(target, options.streams).await?;
            let stop = AtomicBool::new(false);
            let began = Instant::now();
            let schedule =
                Schedule { ports: &entries, per_second: options.rate, polled: options.balancer.is_none() };
            let load = schedule.send(&stop, |number, port| {
                let key = usize::try_from(number).unwrap_or_default() % group.keys;
                let uri = format!("x:{}", key % RESOURCES + 1);
                read(&group.agent(key), &uri, port, &group.key(key))
            });
            let restarts = async {
                let events = tokio::select! {
                    events = restart_each(site, &ports, options) => events,
                    failed = streams.write(), if options.streams > 0 => failed.map(|()| Vec::new()),
                };
                stop.store(true, Ordering::Relaxed);
                events
            };
            let (events, results) = tokio::try_join!(restarts, load)?;
            let streams = if options.streams > 0 { streams.outcomes().await } else { (Vec::new(), 0) };
            if let Some(balancer) = balancer {
                balancer.stop().await;
            }
            Ok((began, events, results, streams, balancer::passed_on(site.dir.path())))
        })
        .await?;
    let (outcomes, refused) = streams;
    let mut report = report(&events, &results, options);
    report.extend(outcomes_report(&outcomes, refused, began));
    report
        .extend(passed_on.iter().map(|(status, count)| format!("\n{count} passed on by nginx: {status}\n")));
    io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
    if let Some(file) = &options.svg {
        fs::write(file, svg::document(&[chart(&events, &results)])).map_err(Error::io("write the curves"))?;
    }
    let failed = results.failed() + refused + outcomes.iter().map(|outcome| outcome.failed).sum::<u64>();
    if failed > 0 {
        return Err(Error::RequestsFailed(failed));
    }
    let broken = outcomes.iter().find(|outcome| outcome.lost > 0 || outcome.longest() >= BREAK);
    broken.map_or(Ok(()), |outcome| {
        Err(Error::StreamsBroken { lost: outcome.lost, longest: outcome.longest() })
    })
}

/// A row for each era, and what its longest break consisted of.
fn outcomes_report(outcomes: &[Outcome], refused: u64, began: Instant) -> Option<String> {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let row = |outcome: &Outcome| {
        let Outcome { era, streams, events, lost, breaks, median, longest, failed } = outcome;
        let [second, opened, over, attempts] = longest.map_or(<[String; 4]>::default(), |longest| {
            [
                format!("{:.1}", longest.ended.duration_since(began).as_secs_f64()),
                format!("{:.0}", millis(longest.opened)),
                format!("{:.0}", millis(longest.over)),
                (longest.failed + 1).to_string(),
            ]
        });
        format!(
            "| {} | {streams} | {events} | {lost} | {breaks} | {failed} | {:.0} | {over} | {second} | {opened} | {attempts} |\n",
            era.version(),
            millis(*median),
        )
    };
    let rows: String = outcomes.iter().map(row).collect();
    (!rows.is_empty()).then(|| {
        format!(
            "\n| streams of | open | events | lost | breaks | failed to open | median ms | longest ms | at second | open after ms \
             | attempts |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n{rows}\n{refused} changes were refused\n"
        )
    })
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
        site.start_at(*port, &SETTINGS).await?;
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
