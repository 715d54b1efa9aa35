//! The part of the report about writes.

use crate::histogram::Histogram;
use crate::report::median;
use crate::run::to_f64;
use crate::writes::{BUSY_WRITERS, BYTES, WRITERS, Writes};

/// The writes as Markdown: their table, and the latency of a quiet agent beside busy writers.
pub(crate) fn render(writes: &Writes) -> String {
    let rates = || writes.rates.iter();
    let gateway = median(rates().map(|(gateway, _)| *gateway).collect());
    let (p50, p99) = (micros(&writes.latencies, 500), micros(&writes.latencies, 990));
    let mut lines = vec![
        "| writes | by | writes/s | × pgbench | p50 µs | p99 µs |".to_owned(),
        "|---|---|--:|--:|--:|--:|".to_owned(),
    ];
    let what = format!("{WRITERS} agents, a writer each, {BYTES} bytes");
    let pairs: Vec<_> = rates().filter_map(|(gateway, without)| Some((*gateway, (*without)?))).collect();
    if pairs.is_empty() {
        lines.push(format!("| {what} | waggle | {gateway:.0} | – | {p50:.0} | {p99:.0} |"));
        lines.push(String::new());
        lines.push("pgbench is not installed on this machine.".to_owned());
    } else {
        let ratio = median(pairs.iter().map(|(gateway, without)| gateway / without).collect());
        let without = median(pairs.iter().map(|(_, without)| *without).collect());
        lines.push(format!("| {what} | waggle | {gateway:.0} | {ratio:.2} | {p50:.0} | {p99:.0} |"));
        lines.push(format!("| the same statements | pgbench | {without:.0} | 1.00 | – | – |"));
        lines.push(String::new());
        lines.push(format!(
            "Both on the gateway's own durable database: pgbench with {WRITERS} clients and prepared statements, the \
             gateway with its pool. The ratio is the median of those of each round."
        ));
    }
    lines.extend(outbox(writes));
    lines.push(quiet(writes));
    lines.join("\n") + "\n"
}

fn outbox(writes: &Writes) -> Option<String> {
    let rounds = || writes.outbox.iter();
    rounds().next()?;
    let share = median(rounds().map(|(bare, audited)| audited / bare).collect());
    let bare = median(rounds().map(|(bare, _)| *bare).collect());
    Some(format!(
        "With the audit outbox disabled the gateway makes {bare:.0} writes/s; with it {:.0} % of that.",
        100.0 * share
    ))
}

fn quiet(writes: &Writes) -> String {
    let (undisturbed, under_load) = (micros(&writes.undisturbed, 990), micros(&writes.under_load, 990));
    format!(
        "A quiet agent's write takes {:.0} µs (p50) and {undisturbed:.0} µs (p99) undisturbed, {:.0} and {under_load:.0} \
         beside {BUSY_WRITERS} writers of one agent, which make {:.0} writes/s: {:.1} times the p99.",
        micros(&writes.undisturbed, 500),
        micros(&writes.under_load, 500),
        median(writes.busy.clone()),
        under_load / undisturbed,
    )
}

fn micros(latencies: &Histogram, per_mille: u64) -> f64 {
    to_f64(latencies.quantile(per_mille))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn histogram(micros: u64) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.record(Duration::from_micros(micros));
        histogram
    }

    fn writes(rates: Vec<(f64, Option<f64>)>) -> Writes {
        Writes {
            rates,
            outbox: vec![(200.0, 180.0)],
            latencies: histogram(100),
            undisturbed: histogram(50),
            under_load: histogram(120),
            busy: vec![700.0],
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_of_each_round() {
        let report = render(&writes(vec![(10.0, Some(20.0)), (30.0, Some(100.0)), (20.0, Some(25.0))]));
        let row = "| 32 agents, a writer each, 1024 bytes | waggle | 20 | 0.50 | 100 | 100 |";
        assert!(report.contains(row), "{report}");
        assert!(report.contains("| pgbench | 25 | 1.00 |"), "{report}");
        assert!(report.contains("makes 200 writes/s; with it 90 % of that."), "{report}");
        assert!(report.contains("which make 700 writes/s: 2.4 times the p99."), "{report}");
    }

    #[test]
    fn ratio_is_absent_without_pgbench() {
        let report = render(&writes(vec![(10.0, None)]));
        assert!(report.contains("| waggle | 10 | – | 100 | 100 |"), "{report}");
        assert!(report.contains("pgbench is not installed"), "{report}");
    }
}
