//! `sources`: what a read of cached content from a connection costs beside an inline one, and the latency of another
//! tenant's inline reads beside sources that fail in every way.

mod upstream;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::upstream::{FAULTS, Upstream};
use crate::cases::read;
use crate::closed_loop::{End, Requests};
use crate::error::Error;
use crate::first_use::forged_key;
use crate::histogram::Histogram;
use crate::http::Connection;
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
    /// Inline reads per second beside the failing sources
    #[arg(long, default_value_t = 500)]
    per_second: u32,
    /// Concurrent reads of a failing source
    #[arg(long, default_value_t = 64)]
    readers: usize,
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
    let upstream = Upstream::start(BYTES).await?;
    population::write(site, &[SOURCED, INLINE]).await?;
    let port = site.start(&[]).await?;
    register(port, &upstream).await?;

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
         ({WANTED} wanted)\n\n| beside | p50 ms | p99 ms | most ms |\n|:--|--:|--:|--:|\n"
    ))?;
    for fault in [None].into_iter().chain(FAULTS.map(Some)) {
        let latencies = beside(port, fault, options).await?;
        let ms = |per_mille| to_f64(latencies.quantile(per_mille)) / 1e3;
        let beside =
            fault.map_or_else(|| "nothing".to_owned(), |fault| format!("a source that {}", fault.says()));
        print(format!("| {beside} | {:.2} | {:.2} | {:.2} |\n", ms(500), ms(990), ms(1_000)))?;
    }
    if ratio > WANTED { Err(Error::SourcesTooSlow { ratio, wanted: WANTED }) } else { Ok(()) }
}

/// Makes a connection, and a resource for each answer of the upstream.
async fn register(port: u16, upstream: &Upstream) -> Result<(), Error> {
    let mut admin = Admin::open(port, &forged_key("wag", 1)).await?;
    let settings = json!({ "baseUrl": upstream.url(), "allowNetworks": ["127.0.0.0/8"] });
    let limits = json!({ "perSecond": 1_000_000, "burst": 1_000_000, "concurrent": 64, "timeoutMs": 2_000 });
    let connection = |id: &str| json!({ "id": id, "kind": "http", "tenants": "*", "settings": settings, "limits": limits });
    // One for each, since the circuit of one that fails opens.
    for (name, ttl) in [("fast", 86_400_000)].into_iter().chain(FAULTS.map(|fault| (fault.path(), 0))) {
        admin.call("POST", "/connections", &connection(name)).await?;
        let source = json!({ "connection": name, "path": name, "ttlMs": ttl });
        let path = format!("/agents/{}/resources?uri=x%3A{name}", SOURCED.agent(0));
        admin.call("PUT", &path, &json!({ "name": name, "source": source })).await?;
    }
    Ok(())
}

/// The latencies of inline reads while another tenant reads from a source.
async fn beside(port: u16, fault: Option<upstream::Fault>, options: &Sources) -> Result<Histogram, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    if let Some(fault) = fault {
        let request = read(&SOURCED.agent(0), &format!("x:{}", fault.path()), port, &SOURCED.key(0));
        for _ in 0..options.readers {
            readers.spawn(drive(port, request.clone(), Arc::clone(&stop)));
        }
    }
    let schedule = Schedule { ports: &[port], per_second: options.per_second, polled: true };
    let request = |_, port| read(&INLINE.agent(0), "x:1", port, &INLINE.key(0));
    let ended = async {
        sleep(Duration::from_secs(options.seconds)).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (results, ()) = tokio::join!(schedule.send(&stop, request), ended);
    let results = results?;
    readers.shutdown().await;
    match results.failed() {
        0 => Ok(results.latencies()),
        failed => Err(Error::RequestsFailed(failed)),
    }
}

/// Sends a request repeatedly until `stop`; failures that are answered are expected.
async fn drive(port: u16, request: Vec<u8>, stop: Arc<AtomicBool>) -> Result<(), Error> {
    let mut connection = Connection::open(port).await?;
    while !stop.load(Ordering::Relaxed) {
        connection.exchange(&request).await?;
    }
    Ok(())
}
