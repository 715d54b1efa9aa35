//! Metrics of connections to content from outside, by their ids, which the operator gives.

use std::sync::Arc;

use crate::sources::{Connection, Connections};
use crate::telemetry::exposition::{Exposition, Kind};

/// The maximum number of connections that have metrics: the first in memory, in the order of their ids.
const MAX_CONNECTIONS: usize = 1_000;

/// Appends them; families without samples until a connection is used.
pub(super) fn render(out: &mut Exposition, connections: &Connections) {
    let mut known = connections.all_in_memory();
    known.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    known.truncate(MAX_CONNECTIONS);
    let help = "Fetches of a connection since it was last changed: with an answer of the source, or failed.";
    let mut family = out.family("waggle_connection_fetches_total", Kind::Counter, help);
    for connection in &known {
        let [answered, failed] = connection.health.counts();
        for (result, count) in [("answered", answered), ("failed", failed)] {
            family.sample(&[("connection", connection.id.as_str()), ("result", result)], count);
        }
    }
    gauge(
        out,
        &known,
        "waggle_connection_failing",
        "Tenants for which the last fetch of a connection failed; 1 if it is enabled and its settings or secrets cannot be used.",
        Connection::failing,
    );
    let help = "Tenants for which the circuit of a connection is open: nothing is fetched for a while.";
    gauge(out, &known, "waggle_connection_circuits_open", help, |connection| connection.health.failing()[1]);
    let help =
        "Tenants for which the circuit of a connection is open for their anonymous callers, or for polls.";
    let mut family = out.family("waggle_connection_partial_circuits_open", Kind::Gauge, help);
    for connection in &known {
        let [anonymous, polls] = connection.health.paused_apart();
        for (cause, count) in [("anonymous", anonymous), ("poll", polls)] {
            family.sample(&[("connection", connection.id.as_str()), ("cause", cause)], count);
        }
    }
}

fn gauge(
    out: &mut Exposition,
    known: &[Arc<Connection>],
    name: &'static str,
    help: &'static str,
    value: fn(&Connection) -> usize,
) {
    let mut family = out.family(name, Kind::Gauge, help);
    for connection in known {
        family.sample(&[("connection", connection.id.as_str())], value(connection));
    }
}
