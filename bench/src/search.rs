//! `search`: searches in one agent of many resources in several languages: latency, memory, the time to index, and how soon
//! another replica finds a change.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cases::{Call, Era, read};
use crate::error::{Error, excerpt};
use crate::first_use::forged_key;
use crate::histogram::Histogram;
use crate::http::{self, Connection};
use crate::library::Library;
use crate::memory;
use crate::population::{self, Group};
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::waggle::Admin;

/// The wanted latency that one in a hundred warm searches may exceed.
const P99: Duration = Duration::from_millis(20);
/// The wanted time until another replica finds a change.
const FRESH: Duration = Duration::from_millis(1_200);
/// The timeout of a build of the index, and of a change.
const INDEXED: Duration = Duration::from_mins(20);
const POLL: Duration = Duration::from_millis(5);
/// The agent.
const GROUP: Group = Group { prefix: "search", agents: 1, resources: 0, keys: 1, bytes: 0 };
const MIB: f64 = 1_048_576.0;

/// The sizes.
#[derive(Args)]
pub(crate) struct Search {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Resources, of which equally many are in English, German, Chinese and Japanese
    #[arg(long, default_value_t = 100_000)]
    resources: usize,
    /// Searches by the tool, and as many by the administration API
    #[arg(long, default_value_t = 2_000)]
    queries: usize,
    /// Changes that another replica is to find, one after another
    #[arg(long, default_value_t = 50)]
    changes: usize,
}

/// Measures, and prints a report.
///
/// # Errors
/// If searches or changes are slower than wanted, or the gateway or the database cannot be run.
pub(crate) async fn run(options: &Search) -> Result<(), Error> {
    site::measured(options.waggle.as_ref(), async |site| measure(site, options).await).await
}

async fn measure(site: &mut Site, options: &Search) -> Result<(), Error> {
    let print = |text: String| io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"));
    let mut library = Library::open()?;
    let bytes = write(site, &mut library, options.resources).await?;
    let [first, second] = [site.start(&[]).await?, site.start(&[]).await?];
    let pid = site.pid()?;
    let mut searcher = Searcher::open(first).await?;
    searcher.read().await?;
    let before = memory::of_process(pid)?;
    let began = Instant::now();
    while searcher.by_tool("alpha").await?.is_none() {
        if began.elapsed() > INDEXED {
            return Err(Error::TimedOut { server: "waggle", seconds: INDEXED.as_secs() });
        }
        sleep(POLL).await;
    }
    let indexed = began.elapsed();
    let mut latencies = [Histogram::new(), Histogram::new()];
    let mut found = 0;
    for nth in 0..options.queries {
        let query = library.query(nth);
        let began = Instant::now();
        found += searcher.by_tool(&query).await?.unwrap_or_default();
        latencies[0].record(began.elapsed());
        let query = library.query(nth);
        let began = Instant::now();
        found += searcher.by_administration(&query).await?.unwrap_or_default();
        latencies[1].record(began.elapsed());
    }
    let after = memory::of_process(pid)?;
    let mut fresh = Histogram::new();
    let mut admin = Admin::open(second, &forged_key("wag", 1)).await?;
    for nth in 0..options.changes {
        let word = format!("freshword{nth}");
        let body = json!({ "name": "fresh", "contents": [{ "text": word }] });
        let resources = format!("/agents/{}/resources?uri=docs%3A%2F%2Flibrary%2F0", GROUP.agent(0));
        admin.call("PUT", &resources, &body).await?;
        let began = Instant::now();
        while searcher.by_administration(&word).await? != Some(1) {
            if began.elapsed() > INDEXED {
                return Err(Error::TimedOut { server: "waggle", seconds: INDEXED.as_secs() });
            }
            sleep(POLL).await;
        }
        fresh.record(began.elapsed());
    }
    let ms = |histogram: &Histogram, per_mille| to_f64(histogram.quantile(per_mille)) / 1e3;
    let row =
        |name, histogram| format!("| {name} | {:.2} | {:.2} |\n", ms(histogram, 500), ms(histogram, 990));
    print(format!(
        "{} resources with {:.0} MiB of text: indexed in {:.1} s; {:.0} MiB resident before, {:.0} MiB after; \
         {:.1} results of a search\n\n| | p50 ms | p99 ms |\n|:--|--:|--:|\n{}{}{}",
        options.resources,
        to_f64(bytes) / MIB,
        indexed.as_secs_f64(),
        to_f64(before) / MIB,
        to_f64(after) / MIB,
        to_f64(found as u64) / to_f64(2 * options.queries as u64),
        row("`tools/call` of `search`", &latencies[0]),
        row("`GET /agents/{agent}/search`", &latencies[1]),
        row("a change of another replica is found", &fresh),
    ))?;
    let is_above = |histogram: &Histogram, per_mille, wanted| {
        Duration::from_micros(histogram.quantile(per_mille)) > wanted
    };
    if latencies.iter().any(|latency| is_above(latency, 990, P99)) || is_above(&fresh, 1_000, FRESH) {
        return Err(Error::SearchTooSlow { p99: P99, fresh: FRESH });
    }
    Ok(())
}

/// Writes the agent and its resources into the database; returns the bytes of their texts.
async fn write(site: &mut Site, library: &mut Library, resources: usize) -> Result<u64, Error> {
    population::write(site, &[GROUP]).await?;
    let mut script = "begin; set local session_replication_role = replica;\n\
        create temporary table documents (n integer, title text, description text, body text) on commit drop;\n\
        copy documents from stdin;\n"
        .to_owned();
    let mut bytes = 0;
    for nth in 0..resources {
        let document = library.document(nth);
        bytes += document.title.len() + document.description.len() + document.text.len();
        let [title, description, text] =
            [document.title, document.description, document.text].map(|text| text.replace('\\', "\\\\"));
        let _infallible = writeln!(script, "{nth}\t{title}\t{description}\t{text}");
    }
    script.push_str("\\.\n");
    script.push_str(&ROWS.replace("{agent}", &GROUP.agent(0)));
    let file = site.dir.path().join("documents.sql");
    fs::write(&file, script).map_err(Error::io("write a script of SQL"))?;
    site.database.execute(&file).await?;
    Ok(bytes as u64)
}

const ROWS: &str = "
update agents set tools = '{search}', resource_count = (select count(*) from documents) where slug = '{agent}';
insert into contents (tenant, agent, hash, bytes)
    select distinct tenant, uid, sha256(convert_to(body, 'UTF8')), convert_to(body, 'UTF8')
    from agents, documents where slug = '{agent}';
insert into resources (tenant, agent, uri, name, title, description, source, revision, last_modified)
    select tenant, uid, 'docs://library/' || n, 'document ' || n, documents.title, documents.description, 'inline', 1, now()
    from agents, documents where slug = '{agent}';
insert into resource_contents (tenant, agent, uri, ordinal, kind, hash, size)
    select tenant, uid, 'docs://library/' || n, 0, 'text', sha256(convert_to(body, 'UTF8')), octet_length(body)
    from agents, documents where slug = '{agent}';
commit;
vacuum analyze;
checkpoint;
";

/// A client that searches on one connection.
struct Searcher {
    connection: Connection,
    port: u16,
    /// The key of the agent.
    key: String,
    /// The `Authorization` header of the operator.
    authorization: String,
}

impl Searcher {
    async fn open(port: u16) -> Result<Self, Error> {
        let authorization = format!("Bearer {}", forged_key("wag", 1));
        Ok(Self { connection: Connection::open(port).await?, port, key: GROUP.key(0), authorization })
    }

    /// Reads a resource, so that the agent is in memory.
    async fn read(&mut self) -> Result<(), Error> {
        let request = read(&GROUP.agent(0), "docs://library/0", self.port, &self.key);
        self.send("resources/read", &request).await.map(|_| ())
    }

    /// The number of results of the tool; `None` while the index is built.
    async fn by_tool(&mut self, query: &str) -> Result<Option<usize>, Error> {
        let call = Call { agent: &GROUP.agent(0), method: "tools/call", mcp_name: Some("search") };
        let params = json!({ "name": "search", "arguments": { "query": query } });
        let answer = self.send("search", &call.request(params, Era::Modern, self.port, &self.key)).await?;
        Ok(answer["result"]["structuredContent"]["results"].as_array().map(Vec::len))
    }

    /// The number of results of the administration API; `None` while the index is built.
    async fn by_administration(&mut self, query: &str) -> Result<Option<usize>, Error> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let target = format!("/admin/v1/agents/{}/search?q={query}", GROUP.agent(0));
        let headers = [("Accept", "application/json"), ("Authorization", self.authorization.as_str())];
        let request = http::request("GET", &target, self.port, &headers, None);
        let answer = self.send("search", &request).await?;
        Ok(answer["items"].as_array().map(Vec::len))
    }

    async fn send(&mut self, case: &'static str, request: &[u8]) -> Result<Value, Error> {
        let answer = self.connection.exchange(request).await?;
        let status = answer.status;
        if status != 200 && status != 503 {
            return Err(Error::Status { server: "waggle", case, status, body: excerpt(answer.body) });
        }
        Ok(serde_json::from_slice(answer.body).unwrap_or_default())
    }
}
