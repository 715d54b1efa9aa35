//! The first calls of a large agent after a start: what answers each of them, and what is in memory then.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cases::{Call, Era, read};
use crate::closed_loop::{Cost, End, Requests};
use crate::error::Error;
use crate::growth::list;
use crate::memory;
use crate::population::Group;
use crate::report::median;
use crate::run::to_f64;
use crate::site::Site;

/// The pause after a start until background work has ended.
const SETTLES: Duration = Duration::from_secs(2);
/// Otherwise the agent is loaded after the start, since it was used before.
const SETTINGS: [(&str, &str); 1] = [("WAGGLE_CACHE__WARM_AGENTS", "0")];

/// A call that is the first one after a start; medians of some starts.
pub(crate) struct FirstCall {
    name: &'static str,
    milliseconds: f64,
    /// CPU of the gateway and of PostgreSQL, in milliseconds.
    gateway: f64,
    postgres: f64,
    /// By how much the resident memory grew, in MiB.
    grown: f64,
}

/// Sends each of some calls to the first agent of a group right after a start.
pub(crate) async fn measure(site: &mut Site, group: &Group, starts: u32) -> Result<Vec<FirstCall>, Error> {
    type Made = fn(&Group, u16) -> Vec<u8>;
    let calls: [(&'static str, Made); 3] = [
        ("server/discover", |group, port| {
            let call = Call { agent: &group.agent(0), method: "server/discover", mcp_name: None };
            call.request(json!({}), Era::Modern, port, &group.key(0))
        }),
        ("resources/read", |group, port| read(&group.agent(0), "x:1", port, &group.key(0))),
        ("resources/list", |group, port| list(group, json!({}), port)),
    ];
    let mut measured = Vec::new();
    for (name, made) in calls {
        let mut all = Vec::new();
        for _ in 0..starts {
            let port = site.start(&SETTINGS).await?;
            tokio::time::sleep(SETTLES).await;
            let requests = Requests { case: name, bytes: [made(group, port)].into(), least: 1 };
            let (before, began) = (memory::of_process(site.pid()?)?, Instant::now());
            let cost = requests.send(site, port, End::Times(1)).await?;
            let took = began.elapsed().as_secs_f64() * 1e3;
            let grown = memory::of_process(site.pid()?)?.saturating_sub(before);
            site.stop_gateways().await;
            all.push((took, cost, to_f64(grown) / 1_048_576.0));
        }
        let of = |value: fn(&(f64, Cost, f64)) -> f64| median(all.iter().map(value).collect());
        measured.push(FirstCall {
            name,
            milliseconds: of(|(took, ..)| *took),
            gateway: of(|(_, cost, _)| cost.gateway / 1e3),
            postgres: of(|(_, cost, _)| cost.postgres / 1e3),
            grown: of(|(.., grown)| *grown),
        });
    }
    Ok(measured)
}

/// The table of these calls.
pub(crate) fn table(calls: &[FirstCall], resources: usize) -> String {
    let row = |call: &FirstCall| {
        let FirstCall { name, milliseconds, gateway, postgres, grown } = call;
        format!("| `{name}` | {milliseconds:.1} | {gateway:.1} | {postgres:.1} | {grown:.1} |\n")
    };
    let rows: String = calls.iter().map(row).collect();
    format!(
        "an agent of {resources} resources\n\n\
         | first call after a start | ms | gateway CPU ms | PostgreSQL CPU ms | RSS grown MiB |\n\
         |---|--:|--:|--:|--:|\n{rows}\n"
    )
}
