//! `growth`: what a read costs, and what memory it takes, as more agents of a large database are in use; cold reads; the
//! first calls of a large agent; and pages of small and large agents.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::cases::{Call, Era, read};
use crate::closed_loop::{Cost, End, Requests};
use crate::cold_reads;
use crate::error::{Error, excerpt};
use crate::fleet::{self, start_own};
use crate::http::Connection;
use crate::options::Server;
use crate::population::{self, Group};
use crate::process::Process;
use crate::report::median;
use crate::run::to_f64;
use crate::site::{self, Site};
use crate::svg::{self, Axis, Chart, Line, Scale};
use crate::{large_agent, memory, metrics};

const RESOURCES: usize = 10;
const BYTES: usize = 1024;
/// Resources of the small agent, and items on a page by default.
const PAGE: usize = 100;
/// A bare handler exits after this time, even if the run was killed.
const LIMIT_LIVES: Duration = Duration::from_hours(1);
const MIB: f64 = 1_048_576.0;

/// The sizes.
#[derive(Args)]
pub(crate) struct Growth {
    /// The gateway's binary [default: `waggle` beside this one]
    #[arg(long)]
    waggle: Option<PathBuf>,
    /// Agents in the database, each of ten resources
    #[arg(long, default_value_t = 100_000)]
    agents: usize,
    /// Numbers of active agents, ascending
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000", value_parser = at_least_one)]
    active: Vec<usize>,
    /// Numbers of agents that are read for the first time after a start; the fewer, the more of the time is that of opening
    /// connections to the database
    #[arg(long, value_delimiter = ',', default_value = "10000,60000", value_parser = at_least_one)]
    cold: Vec<usize>,
    /// Resources of the large agent; a multiple of 100
    #[arg(long, default_value_t = 100_000, value_parser = pages_of_100)]
    large: usize,
    /// How often each is measured; the tables give medians
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How long each measurement lasts, in milliseconds
    #[arg(long, default_value_t = 2000)]
    milliseconds: u64,
    /// Draw the curves into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A number of active agents, with the CPU of each round: of the gateway, and of a bare handler that looks up the same
/// answers by the same keys.
struct Size {
    active: usize,
    resident: u64,
    cached: u64,
    rounds: Vec<Cost>,
    limits: Vec<Cost>,
}

/// Measures and prints tables.
///
/// # Errors
/// If a read fails, or the gateway or the database cannot be run.
pub(crate) async fn run(options: &Growth) -> Result<(), Error> {
    let print = |text: String| io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"));
    site::measured(options.waggle.as_ref(), async |site| {
        let most = options.active.iter().max().copied().unwrap_or_default();
        let agents = options.agents.max(most + options.cold.iter().sum::<usize>());
        let groups = [
            Group { prefix: "growth", agents, resources: RESOURCES, keys: agents, bytes: BYTES },
            Group { prefix: "small", agents: 1, resources: PAGE, keys: 1, bytes: BYTES },
            Group { prefix: "large", agents: 1, resources: options.large, keys: 1, bytes: BYTES },
        ];
        population::write(site, &groups).await?;
        let [growth, small, large] = &groups;
        let sizes = warm(site, growth, options).await?;
        print(warm_table(&sizes, agents))?;
        let cold = options.cold.iter().scan(most, |from, count| {
            *from += count;
            Some(*from - count..*from)
        });
        let cold = cold_reads::measure(site, growth, cold).await?;
        print(cold_reads::table(&cold))?;
        let first = large_agent::measure(site, large, options.rounds).await?;
        print(large_agent::table(&first, options.large))?;
        let pages = lists(site, [small, large], options).await?;
        print(pages_table(&pages))?;
        let Some(file) = &options.svg else { return Ok(()) };
        let [cpu, memory] = curves(&sizes);
        let charts = [cpu, memory, cold_reads::chart(&cold), pages_chart(&pages)];
        fs::write(file, svg::document(&charts)).map_err(Error::io("write the curves"))
    })
    .await
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number from 1 on".to_owned())
}

fn pages_of_100(text: &str) -> Result<usize, String> {
    at_least_one(text)
        .ok()
        .filter(|number| number % PAGE == 0)
        .ok_or_else(|| "expected a multiple of 100".to_owned())
}

/// One read of each of these agents.
pub(crate) fn reads(group: &Group, numbers: std::ops::Range<usize>, port: u16) -> Requests {
    let request = |nth: usize| {
        let uri = format!("x:{}", nth % group.resources + 1);
        read(&group.agent(nth), &uri, port, &group.key(nth))
    };
    Requests { case: "resources/read", bytes: numbers.map(request).collect(), least: group.bytes }
}

/// Makes more and more agents active, and then measures all numbers in turns.
async fn warm(site: &mut Site, group: &Group, options: &Growth) -> Result<Vec<Size>, Error> {
    let port = site.start(&[]).await?;
    let duration = End::After(Duration::from_millis(options.milliseconds));
    let mut sizes = Vec::new();
    for active in options.active.iter().copied() {
        let requests = reads(group, 0..active, port);
        requests.send(site, port, End::Times(1)).await?;
        requests.send(site, port, duration).await?;
        let resident = memory::of_process(site.pid()?)?;
        let cached = metrics::sum(&metrics::scrape(port).await?, "waggle_cache_bytes{");
        sizes.push(Size { active, resident, cached, rounds: Vec::new(), limits: Vec::new() });
    }
    let most = sizes.last().map_or(0, |size| size.active);
    let limit = limit(site, group, most, port).await?;
    for _ in 0..options.rounds {
        for size in &mut sizes {
            let send =
                async |pid, port| reads(group, 0..size.active, port).send_to(pid, site, port, duration).await;
            size.rounds.push(send(site.pid()?, port).await?);
            size.limits.push(send(limit.pid, limit.port).await?);
        }
    }
    limit.stop().await;
    site.stop_gateways().await;
    Ok(sizes)
}

/// A bare handler that looks up what the gateway on `port` answers by the first `keys` keys of a group.
async fn limit(site: &Site, group: &Group, keys: usize, port: u16) -> Result<Process, Error> {
    let write = |name: &str, bytes: &[u8]| {
        let file = site.dir.path().join(name);
        fs::write(&file, bytes).map_err(Error::io("write a file for `limit`")).map(|()| file)
    };
    let mut connection = Connection::open(port).await?;
    let requests = reads(group, 0..1, port);
    let answer = write("answer.json", connection.exchange(&requests.bytes[0]).await?.body)?;
    let all: Vec<String> = (0..keys).map(|nth| group.key(nth)).collect();
    let keys = write("keys", all.join("\n").as_bytes())?;
    let args = [
        "serve-limit".to_owned(),
        "--route=/{agent}/mcp".to_owned(),
        format!("--answer={}", answer.display()),
        format!("--keys={}", keys.display()),
    ];
    let mut process = start_own(Server::Limit, &args, LIMIT_LIVES, site.dir.path())?;
    process.ready("/", false, fleet::START).await?;
    Ok(process)
}

/// A page of a list, with medians.
struct Page {
    /// Resources of the agent.
    resources: usize,
    number: usize,
    /// CPU of the gateway, in µs a list.
    cpu: f64,
    per_second: f64,
}

impl Size {
    fn median(&self, value: fn(&Cost) -> f64) -> f64 {
        median(self.rounds.iter().map(value).collect())
    }

    fn limit(&self) -> f64 {
        median(self.limits.iter().map(|cost| cost.gateway).collect())
    }
}

fn warm_table(sizes: &[Size], agents: usize) -> String {
    let first = sizes.first().map(|size| [size.median(|cost| cost.gateway), size.limit()]);
    let [one, bare_one] = first.unwrap_or([f64::NAN; 2]);
    let row = |size: &Size| {
        let [cpu, bare] = [size.median(|cost| cost.gateway), size.limit()];
        format!(
            "| {} | {cpu:.1} | {:.2} | {bare:.1} | {:.2} | {:.1} | {:.0} | {:.1} | {:.2} |\n",
            size.active,
            cpu / one,
            bare / bare_one,
            size.median(|cost| cost.postgres),
            size.median(|cost| cost.per_second),
            to_f64(size.resident) / MIB,
            to_f64(size.cached) / MIB,
        )
    };
    let rows: String = sizes.iter().map(row).collect();
    format!(
        "{agents} agents of {RESOURCES} resources; each active agent is read in turn, with a key of its own\n\n\
         | active agents | gateway CPU µs/read | × the first | bare handler CPU µs/read | × the first \
         | PostgreSQL CPU µs/read | reads/s | RSS MiB | cached MiB |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|\n{rows}\n"
    )
}

fn curves(sizes: &[Size]) -> [Chart; 2] {
    let x = Axis { label: "active agents", scale: Scale::Logarithmic };
    let line = |name: &str, value: &dyn Fn(&Size) -> f64| Line {
        name: name.to_owned(),
        points: sizes.iter().map(|size| (to_f64(size.active as u64), value(size))).collect(),
    };
    let chart = |title, label, lines| Chart {
        title,
        x,
        y: Axis { label, scale: Scale::Linear },
        lines,
        marks: Vec::new(),
    };
    [
        chart(
            "CPU of a read",
            "µs",
            vec![
                line("gateway", &|size| size.median(|cost| cost.gateway)),
                line("bare handler", &Size::limit),
                line("PostgreSQL", &|size| size.median(|cost| cost.postgres)),
            ],
        ),
        chart(
            "Memory",
            "MiB",
            vec![
                line("resident", &|size| to_f64(size.resident) / MIB),
                line("cached", &|size| to_f64(size.cached) / MIB),
            ],
        ),
    ]
}

/// Lists the first page of both agents, and the last one of the large agent.
async fn lists(site: &mut Site, [small, large]: [&Group; 2], options: &Growth) -> Result<Vec<Page>, Error> {
    let port = site.start(&[]).await?;
    let last = options.large.div_ceil(PAGE);
    let cursor = cursors(large, last, port).await?.pop().unwrap_or_default();
    let page = |group: &Group, params: Value| Requests {
        case: "resources/list",
        bytes: [list(group, params, port)].into_iter().collect(),
        // Each item has a URI and a name.
        least: PAGE * 20,
    };
    let pages = [
        (small.resources, 1, page(small, json!({}))),
        (large.resources, 1, page(large, json!({}))),
        (large.resources, last, page(large, after(&cursor))),
    ];
    let duration = End::After(Duration::from_millis(options.milliseconds));
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..options.rounds {
        for ((_, _, requests), costs) in pages.iter().zip(&mut costs) {
            costs.push(requests.send(site, port, duration).await?);
        }
    }
    site.stop_gateways().await;
    let of = |costs: &[Cost], value: fn(&Cost) -> f64| median(costs.iter().map(value).collect());
    let page = |((resources, number, _), costs): (&(usize, usize, Requests), &Vec<Cost>)| Page {
        resources: *resources,
        number: *number,
        cpu: of(costs, |cost| cost.gateway),
        per_second: of(costs, |cost| cost.per_second),
    };
    Ok(pages.iter().zip(&costs).map(page).collect())
}

fn pages_table(pages: &[Page]) -> String {
    let row = |page: &Page| {
        let Page { resources, number, cpu, per_second } = page;
        format!("| {resources} | {number} | {cpu:.1} | {per_second:.0} |\n")
    };
    let rows: String = pages.iter().map(row).collect();
    format!(
        "| resources of the agent | page of {PAGE} | gateway CPU µs/list | lists/s |\n|--:|--:|--:|--:|\n{rows}"
    )
}

fn pages_chart(pages: &[Page]) -> Chart {
    let line = |name: &str, is_on: fn(&Page) -> bool| Line {
        name: name.to_owned(),
        points: pages
            .iter()
            .filter(|page| is_on(page))
            .map(|page| (to_f64(page.resources as u64), page.cpu))
            .collect(),
    };
    Chart {
        title: "CPU of a page of a list",
        x: Axis { label: "resources of the agent", scale: Scale::Logarithmic },
        y: Axis { label: "µs", scale: Scale::Linear },
        lines: vec![
            line("page 1", |page| page.number == 1),
            line("last page", |page| page.number == page.resources.div_ceil(PAGE)),
        ],
        marks: Vec::new(),
    }
}

/// The request for a page of the resources of a group's first agent.
pub(crate) fn list(group: &Group, params: Value, port: u16) -> Vec<u8> {
    let call = Call { agent: &group.agent(0), method: "resources/list", mcp_name: None };
    call.request(params, Era::Modern, port, &group.key(0))
}

/// The parameters of the page that a cursor leads to.
pub(crate) fn after(cursor: &Value) -> Value {
    if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) }
}

/// The cursors that lead to this many pages, read page by page; `null` leads to the first.
pub(crate) async fn cursors(group: &Group, pages: usize, port: u16) -> Result<Vec<Value>, Error> {
    let mut connection = Connection::open(port).await?;
    let mut cursors = vec![Value::Null];
    while let Some(cursor) = cursors.last().filter(|_| cursors.len() < pages) {
        let answer = connection.exchange(&list(group, after(cursor), port)).await?;
        let message: Value = serde_json::from_slice(answer.body).unwrap_or_default();
        let next = message["result"]["nextCursor"].clone();
        if !next.is_string() {
            let (expected, body) = ("a further page", excerpt(answer.body));
            return Err(Error::Unexpected { server: "waggle", case: "resources/list", expected, body });
        }
        cursors.push(next);
    }
    Ok(cursors)
}
