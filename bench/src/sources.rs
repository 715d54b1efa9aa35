//! `sources`: what a read of cached content from a connection costs beside an inline one, and the latency of another
//! tenant's inline reads beside reads of sources that fail in every way, beside as many inline reads, and beside nothing.

mod probe;
mod upstream;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::upstream::{FAULTS, Fault, Upstream};
use crate::cases::read;
use crate::closed_loop::{End, Requests};
use crate::cpu;
use crate::error::Error;
use crate::first_use::forged_key;
use crate::open_loop::Schedule;
use crate::population::{self, Group};
use crate::report::median;
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::waggle::Admin;

/// How much CPU time a cached read may take, as a multiple of an inline one.
const WANTED: f64 = 1.1;
const BYTES: usize = 1_024;
/// The agent whose content comes from a connection, and that of another tenant.
const SOURCED: Group = Group { prefix: "sourced", agents: 1, resources: 1, keys: 1, bytes: BYTES };
const INLINE: Group = Group { prefix: "inline", agents: 1, resources: 1, keys: 1, bytes: BYTES };

/// The sizes.
#[derive(Args)]
pub(crate) struct Sources {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Rounds, in each of which both kinds of reads take their turn
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long each turn, and the reads beside each source, take
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds of reads beside each source; the table gives medians
    #[arg(long, default_value_t = 3)]
    faults: usize,
    /// Inline reads per second, whose latency is measured
    #[arg(long, default_value_t = 500)]
    per_second: u32,
    /// Reads per second of another tenant beside them
    #[arg(long, default_value_t = 200)]
    others: u32,
    /// Fetches per second that a connection allows [default: that of the gateway]
    #[arg(long)]
    fetches: Option<u32>,
}

/// The number of different contents of a failing source that are read: each is fetched once at a time.
const CONTENTS: u64 = 64;

/// What another tenant reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Nothing,
    Inline,
    Failing(Fault),
}

impl Other {
    fn says(self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Inline => "as many inline reads".to_owned(),
            Self::Failing(fault) => format!("a source that {}", fault.says()),
        }
    }

    fn uri(self, number: u64) -> String {
        match self {
            Self::Nothing | Self::Inline => "x:1".to_owned(),
            Self::Failing(fault) => format!("x:{}/{}", fault.path(), number % CONTENTS),
        }
    }
}

/// Measures, and prints a report.
///
/// # Errors
/// If a cached read costs more than wanted, or an inline one fails.
pub(crate) async fn run(options: &Sources) -> Result<(), Error> {
    site::measured(options.waggle.as_ref(), async |site| measure(site, options).await).await
}

async fn measure(site: &mut Site, options: &Sources) -> Result<(), Error> {
    let print = |text: String| io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"));
    let upstream = Upstream::start(BYTES)?;
    population::write(site, &[SOURCED, INLINE]).await?;
    let port = site.start(&[]).await?;
    register(port, &upstream, options).await?;

    let turn = End::After(Duration::from_secs(options.seconds));
    let reads = |group: &Group, uri: &str| Requests {
        case: "resources/read",
        bytes: [read(&group.agent(0), uri, port, &group.key(0))].into_iter().collect(),
        least: BYTES,
    };
    let (cached, inline) = (reads(&SOURCED, "x:fast"), reads(&INLINE, "x:1"));
    let (mut costs, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..options.rounds {
        let [of_cached, of_inline] =
            [cached.send(site, port, turn).await?.gateway, inline.send(site, port, turn).await?.gateway];
        costs[0].push(of_cached);
        costs[1].push(of_inline);
        ratios.push(of_cached / of_inline);
    }
    let [of_cached, of_inline] = costs.map(median);
    let ratio = median(ratios);
    print(format!(
        "A cached read takes {of_cached:.1} µs of CPU, an inline one {of_inline:.1} µs: {ratio:.2} times as much \
         ({WANTED} wanted)\n\n\
         {} inline reads per second beside {} reads per second of another tenant:\n\n\
         | beside | p50 ms | p99 ms | most ms | fetches/s | gateway, CPU ms/s |\n|:--|--:|--:|--:|--:|--:|\n",
        options.per_second, options.others
    ))?;
    let others = [Other::Nothing, Other::Inline].into_iter().chain(FAULTS.map(Other::Failing));
    let mut found: Vec<(Other, Vec<Beside>)> = others.map(|other| (other, Vec::new())).collect();
    for _ in 0..options.faults {
        for (other, rounds) in &mut found {
            rounds.push(beside((site, port), *other, &upstream, options).await?);
        }
    }
    for (other, rounds) in found {
        let of = |column: usize| median(rounds.iter().map(|round| round[column]).collect());
        print(format!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |\n",
            other.says(),
            of(0),
            of(1),
            of(2),
            of(3),
            of(4)
        ))?;
    }
    if ratio > WANTED { Err(Error::SourcesTooSlow { ratio, wanted: WANTED }) } else { Ok(()) }
}

/// Makes a connection for each answer of the upstream, a resource with the good one, and a template for each other.
async fn register(port: u16, upstream: &Upstream, options: &Sources) -> Result<(), Error> {
    let mut admin = Admin::open(port, &forged_key("wag", 1)).await?;
    let settings = json!({ "baseUrl": upstream.url(), "allowNetworks": ["127.0.0.0/8"] });
    let mut limits = json!({ "timeoutMs": 2_000 });
    if let Some(fetches) = options.fetches {
        (limits["perSecond"], limits["burst"]) = (fetches.into(), fetches.into());
    }
    let connection = |id: &str| json!({ "id": id, "kind": "http", "tenants": "*", "settings": settings, "limits": limits });
    let agent = SOURCED.agent(0);
    admin.call("POST", "/connections", &connection("fast")).await?;
    let source = json!({ "connection": "fast", "path": "fast", "ttlMs": 86_400_000 });
    let path = format!("/agents/{agent}/resources?uri=x%3Afast");
    admin.call("PUT", &path, &json!({ "name": "fast", "source": source })).await?;
    // A connection for each, since the circuit of one that fails opens.
    for name in FAULTS.map(Fault::path) {
        admin.call("POST", "/connections", &connection(name)).await?;
        let source = json!({ "connection": name, "path": format!("{name}/{{n}}"), "ttlMs": 0 });
        let path = format!("/agents/{agent}/templates?uriTemplate=x%3A{name}%2F%7Bn%7D");
        admin.call("PUT", &path, &json!({ "name": name, "source": source })).await?;
    }
    Ok(())
}

/// Inline reads beside what another tenant reads: p50, p99 and the longest, in milliseconds; fetches per second; CPU time of
/// the gateway per second, in milliseconds.
type Beside = [f64; 5];

/// Sends the requests of both tenants, each at its own rate.
async fn beside(
    (site, port): (&Site, u16),
    other: Other,
    upstream: &Upstream,
    options: &Sources,
) -> Result<Beside, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let inline = read(&INLINE.agent(0), "x:1", port, &INLINE.key(0));
    let inline = probe::latencies(port, inline, options.per_second, &stop);
    let others = Schedule { ports: &[port], per_second: options.others, polled: true };
    let others = async {
        if other == Other::Nothing {
            return Ok(0);
        }
        let request = |number, port| read(&SOURCED.agent(0), &other.uri(number), port, &SOURCED.key(0));
        others.send(&stop, request).await.map(|results| results.failed())
    };
    let measured = async {
        let before = (Instant::now(), cpu::of_process(site.pid()?)?, upstream.requests());
        sleep(Duration::from_secs(options.seconds)).await;
        let (seconds, cpu) = (before.0.elapsed().as_secs_f64(), cpu::of_process(site.pid()?)?);
        stop.store(true, Ordering::Relaxed);
        let fetches = to_f64(upstream.requests() - before.2) / seconds;
        Ok::<_, Error>((fetches, cpu.saturating_sub(before.1).as_secs_f64() * 1e3 / seconds))
    };
    let (inline, others, measured) = tokio::join!(inline, others, measured);
    let (inline, others, (fetches, cpu)) = (inline?, others?, measured?);
    match others {
        0 => {
            let ms = |per_mille| to_f64(inline.quantile(per_mille)) / 1e3;
            Ok([ms(500), ms(990), ms(1_000), fetches, cpu])
        }
        failed => Err(Error::RequestsFailed(failed)),
    }
}
