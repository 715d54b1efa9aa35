//! `caches`: the resident memory of a gateway whose working set is larger than the budget of its caches, and how often they
//! answer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::error::{Error, excerpt};
use crate::http::{self, Connection};
use crate::options::gateway_binary;
use crate::waggle::Waggle;
use crate::{memory, metrics};

const READY: Duration = Duration::from_mins(2);
const CONNECTIONS: usize = 16;
const MIB: u64 = 1 << 20;
/// The bytes of one resource. It is in memory twice: as contents and as an encoded result.
const RESOURCE: u64 = 16 << 10;
const COPIES: u64 = 2;
/// What the resident memory may take above the budget: a part of it, and what an idle gateway needs.
const PERCENT: u64 = 115;
const IDLE: u64 = 48 * MIB;

/// The budgets and the working set.
#[derive(Args)]
pub(crate) struct Caches {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Budgets of the caches, in MiB
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024")]
    budgets: Vec<u64>,
    /// What the requested resources take in memory, in MiB
    #[arg(long, default_value_t = 2048)]
    working_set: u64,
    /// Agents that they are spread over
    #[arg(long, default_value_t = 32)]
    agents: u64,
    /// How often each is requested on average
    #[arg(long, default_value_t = 2)]
    passes: u64,
}

/// What was measured with one budget, in bytes but for the rates.
struct Measured {
    budget: u64,
    /// When nothing was cached, at the end, and at most.
    resident: [u64; 3],
    cached: u64,
    /// Of 1,000 look-ups of results in the last pass.
    hit_permille: u64,
}

/// Runs the check and prints the result.
///
/// # Errors
/// If the resident memory exceeds its bound, or the gateway cannot be run.
pub(crate) async fn run(options: &Caches) -> Result<(), Error> {
    let binary = gateway_binary(options.waggle.as_ref())?;
    let folder = tempfile::tempdir().map_err(Error::io("make a folder"))?;
    let each = (options.working_set * MIB / RESOURCE / COPIES / options.agents).max(1);
    let keys = register(&binary, folder.path(), options.agents, each).await?;
    let mut exceeded = Vec::new();
    let mut report = format!(
        "{} resources of {} agents, {} MiB in memory\n\
         | budget MiB | cached MiB | idle RSS MiB | RSS MiB | most MiB | bound MiB | grown / cached | hits |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|\n",
        each * options.agents,
        options.agents,
        options.working_set
    );
    for budget in options.budgets.iter().map(|budget| budget * MIB) {
        let found = measure(&binary, folder.path(), budget, &keys, each, options.passes).await?;
        report += &found.row();
        if found.resident[2] > found.bound() {
            exceeded.push(budget / MIB);
        }
    }
    io::stdout().write_all(report.as_bytes()).map_err(Error::io("write the report"))?;
    if exceeded.is_empty() { Ok(()) } else { Err(Error::MemoryExceeded(exceeded)) }
}

/// Creates the agents, each with so many resources `x:1`, `x:2` …; returns a key of each.
async fn register(binary: &Path, dir: &Path, agents: u64, each: u64) -> Result<Vec<String>, Error> {
    let mut gateway = Waggle::start(binary, dir, &[])?;
    gateway.register_fixture().await?;
    let mut admin = gateway.admin().await?;
    let mut keys = Vec::new();
    for agent in 0..agents {
        admin.create(&format!("cached-{agent}")).await?;
        keys.push(admin.issue(&format!("cached-{agent}")).await?);
    }
    let made = format!(
        "create temporary table made as select a.tenant, a.uid, 'x:' || n as uri, \
         convert_to(repeat(md5(a.slug || n), {}), 'UTF8') as bytes \
         from agents a, generate_series(1, {each}) n where a.slug like 'cached-%'; \
         insert into contents (tenant, agent, hash, bytes) select tenant, uid, sha256(bytes), bytes from made; \
         insert into resources (tenant, agent, uri, name, source, revision, last_modified) \
         select tenant, uid, uri, 'n', 'inline', 1, now() from made; \
         insert into resource_contents (tenant, agent, uri, ordinal, kind, hash, size) \
         select tenant, uid, uri, 0, 'text', sha256(bytes), octet_length(bytes) from made",
        RESOURCE / 32
    );
    let socket = std::fs::read_to_string(gateway.postgres.data_dir.join("embedded.socket"))
        .map_err(Error::io("find the socket of the gateway's database"))?;
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", &made]);
    psql.args(["--host", socket.trim(), "--username=waggle", "waggle"]).stdin(Stdio::null());
    let output = psql.kill_on_drop(true).output().await.map_err(Error::io("run psql"))?;
    gateway.stop().await;
    if output.status.success() { Ok(keys) } else { Err(Error::Database(excerpt(&output.stderr))) }
}

async fn measure(
    binary: &Path,
    dir: &Path,
    budget: u64,
    keys: &[String],
    each: u64,
    passes: u64,
) -> Result<Measured, Error> {
    let bytes = budget.to_string();
    let mut gateway = Waggle::start(binary, dir, &[("WAGGLE_CACHE__BYTES", &bytes)])?;
    gateway.process.ready("/readyz", true, READY).await?;
    let (port, pid) = (gateway.process.port, gateway.process.pid);
    let idle = memory::of_process(pid)?;
    let mut most = idle;
    let mut before = Metrics::default();
    for pass in 0..passes {
        before = Metrics::scrape(port).await?;
        let mut clients = JoinSet::new();
        for client in 0..CONNECTIONS as u64 {
            clients.spawn(read(port, keys.to_vec(), (each, pass, client)));
        }
        loop {
            most = most.max(memory::of_process(pid)?);
            match tokio::time::timeout(Duration::from_millis(200), clients.join_next()).await {
                Ok(Some(done)) => done??,
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }
    let after = Metrics::scrape(port).await?;
    let resident = [idle, memory::of_process(pid)?, most];
    gateway.stop().await;
    let [hits, misses] = [after.hits - before.hits, after.misses - before.misses];
    let hit_permille = 1_000 * hits / (hits + misses).max(1);
    Ok(Measured { budget, resident, cached: after.bytes, hit_permille })
}

/// Reads as many resources as are this client's part, chosen at random.
async fn read(port: u16, keys: Vec<String>, (each, pass, client): (u64, u64, u64)) -> Result<(), Error> {
    let mut connection = Connection::open(port).await?;
    let agents = keys.len() as u64;
    let all = each * agents;
    let mut state = pass * 1_000_003 + client + 1;
    for _ in (client..all).step_by(CONNECTIONS) {
        state = random(state);
        let chosen = (state >> 16) % all;
        let (agent, resource) = (chosen % agents, chosen / agents + 1);
        let params = json!({"uri": format!("x:{resource}")});
        let body: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params});
        let key = usize::try_from(agent).ok().and_then(|agent| keys.get(agent)).map_or("", String::as_str);
        let headers = [("X-Agent-API-Key", key)];
        let request = http::request("POST", &format!("/cached-{agent}/mcp"), port, &headers, Some(&body));
        let answer = connection.exchange(&request).await?;
        if answer.status != 200 || (answer.body.len() as u64) < RESOURCE {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::Status { server: "waggle", case: "resources/read", status, body });
        }
    }
    Ok(())
}

/// The next of a sequence of numbers that look random: xorshift.
fn random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

/// The metrics of caches.
#[derive(Default)]
struct Metrics {
    bytes: u64,
    hits: u64,
    misses: u64,
}

impl Metrics {
    async fn scrape(port: u16) -> Result<Self, Error> {
        Ok(Self::parse(&metrics::scrape(port).await?))
    }

    fn parse(text: &str) -> Self {
        let of = |outcome| metrics::sum(text, &format!("waggle_results_total{{outcome=\"{outcome}\"}}"));
        Self { bytes: metrics::sum(text, "waggle_cache_bytes{"), hits: of("hit"), misses: of("miss") }
    }
}

impl Measured {
    fn bound(&self) -> u64 {
        self.budget * PERCENT / 100 + IDLE
    }

    fn row(&self) -> String {
        let [idle, resident, most] = self.resident;
        let mib = |bytes: u64| bytes / MIB;
        let grown = resident.saturating_sub(idle) * 100 / self.cached.max(1);
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {}.{} % |\n",
            mib(self.budget),
            mib(self.cached),
            mib(idle),
            mib(resident),
            mib(most),
            mib(self.bound()),
            format_args!("{}.{:02}", grown / 100, grown % 100),
            self.hit_permille / 10,
            self.hit_permille % 10,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_all_caches_are_added() {
        let text = "# TYPE waggle_cache_bytes gauge\nwaggle_cache_bytes{cache=\"agents\"} 5\n\
                    waggle_cache_bytes{cache=\"results\"} 7\nwaggle_results_total{outcome=\"hit\"} 3\n\
                    waggle_results_total{outcome=\"miss\"} 1\n";
        let found = Metrics::parse(text);
        assert_eq!((found.bytes, found.hits, found.misses), (12, 3, 1));
    }
}
