//! The first reads of agents after a start, beside `pgbench` with the same two statements on the same agents. Both plan each
//! statement once on each connection. The gateway's time includes its connections being opened, HTTP and the audit log;
//! `pgbench` begins to count when it is connected, and has results as text. It is second, when the server has cached the rows.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use crate::closed_loop::{Cost, End};
use crate::error::Error;
use crate::growth::reads;
use crate::pgbench::Pgbench;
use crate::population::Group;
use crate::run::to_f64;
use crate::site::Site;
use crate::svg::{Axis, Chart, Line, Scale};

/// The statements, after the choice of an agent.
pub(crate) const SCRIPT: &str = include_str!("cold_reads.sql");
/// The pause after a start until background work has ended.
const SETTLES: Duration = Duration::from_secs(3);
/// The clients of `pgbench`: as many connections as the gateway has by default for what it loads.
const CLIENTS: usize = 12;

/// What agents that are read once each after a start take.
pub(crate) struct ColdReads {
    agents: usize,
    cost: Cost,
    /// Transactions of `pgbench` per second with all statements and with the choice of an agent alone, if it is installed.
    pgbench: Option<[f64; 2]>,
}

/// Reads each of these agents of a group once right after a start, for each of the ranges.
pub(crate) async fn measure(
    site: &mut Site,
    group: &Group,
    ranges: impl IntoIterator<Item = Range<usize>>,
) -> Result<Vec<ColdReads>, Error> {
    let mut measured = Vec::new();
    for numbers in ranges {
        let port = site.start(&[]).await?;
        tokio::time::sleep(SETTLES).await;
        let agents = numbers.len();
        let cost = reads(group, numbers.clone(), port).send(site, port, End::Times(1)).await?;
        site.stop_gateways().await;
        let pgbench = pgbench(site, group, numbers).await?;
        measured.push(ColdReads { agents, cost, pgbench });
    }
    Ok(measured)
}

impl ColdReads {
    /// Transactions of `pgbench` per second with the statements after the choice of an agent.
    fn statements(&self) -> Option<f64> {
        // The times of both parts add up, since both keep the cores busy.
        self.pgbench.map(|[all, choice]| 1.0 / (1.0 / all - 1.0 / choice))
    }
}

/// A row for each range of agents.
pub(crate) fn table(measured: &[ColdReads]) -> String {
    let row = |reads: &ColdReads| {
        let Cost { per_second, gateway, postgres } = reads.cost;
        let compared = match (reads.pgbench, reads.statements()) {
            (Some([all, choice]), Some(statements)) => {
                format!("{all:.0}, {choice:.0} | {statements:.0} | {:.2}", per_second / statements)
            }
            _ => "– | – | –".to_owned(),
        };
        format!("| {} | {per_second:.0} | {gateway:.0} | {postgres:.0} | {compared} |\n", reads.agents)
    };
    let rows: String = measured.iter().map(row).collect();
    format!(
        "| cold reads | reads/s | gateway CPU µs/read | PostgreSQL CPU µs/read | `pgbench` with the choice of an agent, \
         choice alone | less the choice | × `pgbench` |\n|--:|--:|--:|--:|--:|--:|--:|\n{rows}\n"
    )
}

/// Reads per second by the number of agents.
pub(crate) fn chart(measured: &[ColdReads]) -> Chart {
    let line = |name: &str, value: &dyn Fn(&ColdReads) -> Option<f64>| {
        let point = |reads: &ColdReads| value(reads).map(|value| (to_f64(reads.agents as u64), value));
        let mut points: Vec<_> = measured.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: name.to_owned(), points }
    };
    Chart {
        title: "First reads after a start",
        x: Axis { label: "agents, each read once", scale: Scale::Logarithmic },
        y: Axis { label: "reads/s", scale: Scale::Linear },
        lines: vec![
            line("gateway", &|reads| Some(reads.cost.per_second)),
            line("pgbench, the same", &ColdReads::statements),
        ],
        marks: Vec::new(),
    }
}

/// Transactions per second with the statements after the choice of an agent, and with the choice alone; `None` if `pgbench`
/// is not installed.
async fn pgbench(site: &Site, group: &Group, numbers: Range<usize>) -> Result<Option<[f64; 2]>, Error> {
    let (agents, dir) = (numbers.len(), site.dir.path());
    let table = format!(
        "drop table if exists bench_agents;\n\
         create table bench_agents as select row_number() over (order by i) as n, \
         '\\x' || encode(k.hash, 'hex') as hash, a.slug, a.tenant, a.uid, 'x:' || i % {} + 1 as uri \
         from generate_series({}, {}) i join agents a on a.slug = '{}-' || i join api_keys k on k.agent = a.uid;\n\
         create unique index on bench_agents (n);\nvacuum analyze bench_agents;\n",
        group.resources,
        numbers.start,
        numbers.end - 1,
        group.prefix
    );
    let file = dir.join("bench_agents.sql");
    fs::write(&file, table).map_err(Error::io("write a script of SQL"))?;
    site.database.execute(&file).await?;
    let all = SCRIPT.replace(":agents", &agents.to_string()).replace(":clients", &CLIENTS.to_string());
    let choice = all.split_inclusive("\\gset\n").next().unwrap_or_default();
    let mut rates = [0.0; 2];
    for (rate, script) in rates.iter_mut().zip([all.as_str(), choice]) {
        let Some(pgbench) = Pgbench::new(script, [site.database.url()], dir).await? else { return Ok(None) };
        *rate = pgbench.run(CLIENTS, End::Times(agents.div_ceil(CLIENTS))).await?;
    }
    let [all, choice] = rates;
    if choice <= all {
        return Err(Error::Pgbench("the choice of an agent took longer than all statements".to_owned()));
    }
    Ok(Some(rates))
}
