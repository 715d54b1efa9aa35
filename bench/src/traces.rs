//! `traces`: the CPU time of a read with traces, of which a part is sampled, as a multiple of one without.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use clap::Args;
use tokio::net::TcpListener;

use crate::cases::read;
use crate::closed_loop::{End, Requests};
use crate::error::Error;
use crate::population::{self, Group};
use crate::report::median;
use crate::site::{self, Site};

/// How much CPU time a read with traces may take, as a multiple of one without.
const WANTED: f64 = 1.05;
const BYTES: usize = 1_024;
const GROUP: Group = Group { prefix: "traced", agents: 1, resources: 1, keys: 1, bytes: BYTES };
/// How long a gateway may take to export what is queued.
const EXPORT: Duration = Duration::from_secs(6);

/// The sizes.
#[derive(Args)]
pub(crate) struct Traces {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Rounds, in each of which every gateway takes its turn
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// How long each turn takes, in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// The part of the traces that is sampled
    #[arg(long, default_value_t = 0.01)]
    sampled: f64,
}

/// Measures, and prints a report.
///
/// # Errors
/// If a read with traces costs more than wanted, or nothing is exported.
pub(crate) async fn run(options: &Traces) -> Result<(), Error> {
    site::measured(options.waggle.as_ref(), async |site| measure(site, options).await).await
}

async fn measure(site: &mut Site, options: &Traces) -> Result<(), Error> {
    let received = Arc::new(AtomicU64::new(0));
    let collector = collector(Arc::clone(&received)).await?;
    population::write(site, &[GROUP]).await?;
    let sampled = options.sampled.to_string();
    let traced = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", sampled.as_str()),
    ];
    // Two without traces: what they differ by is chance, and traces are compared with their mean.
    let kinds: [(&str, &[(&str, &str)]); 3] =
        [("no traces", &[]), ("no traces, another process", &[]), ("traces", &traced)];
    let mut gateways = Vec::new();
    for (_, settings) in kinds {
        let port = site.start(settings).await?;
        let pid = site.gateways.last().map(|gateway| gateway.pid);
        gateways.push((port, pid.ok_or(Error::NotRunning { server: "waggle" })?));
    }
    let turn = End::After(Duration::from_secs(options.seconds));
    let (mut costs, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for round in 0..options.rounds {
        let mut taken = [0.0; 3];
        // Each round begins with another gateway: what runs before a turn influences it.
        for turn_of in 0..taken.len() {
            let nth = (round + turn_of) % taken.len();
            let Some((port, pid)) = gateways.get(nth) else { continue };
            let request = read(&GROUP.agent(0), "x:1", *port, &GROUP.key(0));
            let requests =
                Requests { case: "resources/read", bytes: [request].into_iter().collect(), least: BYTES };
            let cost = requests.send_to(*pid, site, *port, turn).await?.gateway;
            taken[nth] = cost;
        }
        let without = f64::midpoint(taken[0], taken[1]);
        for (nth, cost) in taken.into_iter().enumerate() {
            costs[nth].push(cost);
            ratios[nth].push(cost / without);
        }
    }
    // What is queued is exported within an interval.
    tokio::time::sleep(EXPORT).await;
    let exported = received.load(Ordering::Relaxed);
    let (costs, ratios) = (costs.map(median), ratios.map(median));
    let row = |nth: usize| format!("| {} | {:.1} | {:.3} |\n", kinds[nth].0, costs[nth], ratios[nth]);
    let rows: String = (0..kinds.len()).map(row).collect();
    let report = format!(
        "A read from memory, {} % of the traces sampled; {exported} bytes of spans were received\n\n\
         | gateway | CPU µs | × without |\n|:--|--:|--:|\n{rows}",
        options.sampled * 100.0
    );
    io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
    if options.sampled > 0.0 && exported == 0 {
        return Err(Error::NothingMeasured { seconds: options.seconds });
    }
    if ratios[2] > WANTED {
        return Err(Error::TracesTooSlow { ratio: ratios[2], wanted: WANTED });
    }
    Ok(())
}

/// Starts a collector that counts the bytes it receives; returns its address.
async fn collector(received: Arc<AtomicU64>) -> Result<String, Error> {
    let doing = "start a collector";
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::io(doing))?;
    let address = listener.local_addr().map_err(Error::io(doing))?;
    let count = move |body: Bytes| {
        received.fetch_add(body.len() as u64, Ordering::Relaxed);
        std::future::ready(())
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(count)).await });
    Ok(format!("http://{address}"))
}
