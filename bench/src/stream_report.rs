//! The part of the report about streams.

use crate::cases::Era;
use crate::fan_out::{FanOutCase, Sample};
use crate::histogram::Histogram;
use crate::options::Server;
use crate::relay::{CHANGES, OTHER_WRITERS, Relayed};
use crate::report::median;
use crate::run::to_f64;
use crate::streams::Streams;

/// The streams as Markdown: latency between replicas, and the cost of many streams.
pub(crate) fn render(streams: &Streams) -> String {
    let mut lines = relay(streams);
    lines.extend(fan_out(streams));
    lines.join("\n") + "\n"
}

fn relay(streams: &Streams) -> Vec<String> {
    if streams.relayed.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "| from a write's answer to the event on another replica | era | changes | p50 ms | p99 ms | longest ms |"
            .to_owned(),
        "|---|---|--:|--:|--:|--:|".to_owned(),
    ];
    let row = |what: &str, relayed: &Relayed, seen: &Histogram| {
        let [p50, p99, longest] = [500, 990, 1000].map(|quantile| to_f64(seen.quantile(quantile)) / 1e3);
        let (era, count) = (relayed.era.version(), seen.len());
        format!("| {what} | {era} | {count} | {p50:.1} | {p99:.1} | {longest:.1} |")
    };
    let beside = format!("beside {OTHER_WRITERS} other writers");
    lines.extend(streams.relayed.iter().map(|relayed| row("undisturbed", relayed, &relayed.alone)));
    lines.extend(streams.relayed.iter().map(|relayed| row(&beside, relayed, &relayed.under_load)));
    lines.push(String::new());
    lines.push(format!(
        "{CHANGES} changes a round, each after the one before it was received; the others write to agents of their own, \
         {:.0} times a second together.",
        median(streams.others.clone())
    ));
    lines.push(String::new());
    lines
}

fn fan_out(streams: &Streams) -> Vec<String> {
    let mut lines = vec![
        "| streams | era | server | KiB/stream | × limit | CPU µs/event | × limit | answer ms | first | p50 | p99 \
         | last | last − answer |"
            .to_owned(),
        "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|".to_owned(),
    ];
    lines.extend(streams.fan_outs.iter().map(|(kind, samples)| line(*kind, samples, streams)));
    lines.push(String::new());
    let client = streams.fan_outs.iter().map(|(_, samples)| of(samples, |sample| sample.client_micros));
    lines.push(format!(
        "KiB/stream is the growth of the server's resident memory per idle stream. All streams receive one \
         change after another; times in ms are since it was sent, medians over changes and rounds. `limit` is a \
         bare handler on a broadcast channel. With 2 replicas a change is sent once the second one, on the same database, \
         has acknowledged it. This program used up to {:.1} µs of CPU per event.",
        client.fold(0.0, f64::max)
    ));
    if !streams.left_out.is_empty() {
        lines.push(format!(
            "Not measured with {:?} streams: no more than {} files may be open at once; raise it with `ulimit -n`.",
            streams.left_out, streams.descriptors
        ));
    }
    lines
}

fn line(kind: FanOutCase, samples: &[Sample], streams: &Streams) -> String {
    let ratio =
        |value| ratio(kind, samples, streams, value).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    format!(
        "| {} | {} | {} | {:.1} | {} | {:.1} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
        kind.streams,
        kind.era.map_or("–", Era::version),
        name(kind),
        of(samples, |sample| sample.bytes / 1024.0),
        ratio(|sample| sample.bytes),
        of(samples, |sample| sample.server_micros),
        ratio(|sample| sample.server_micros),
        of(samples, |sample| sample.answered),
        of(samples, |sample| sample.first),
        of(samples, |sample| sample.p50),
        of(samples, |sample| sample.p99),
        of(samples, |sample| sample.last),
        of(samples, |sample| sample.last_after_answer),
    )
}

fn name(kind: FanOutCase) -> String {
    let replicas = if kind.replicated { ", 2 replicas" } else { "" };
    format!("{}{replicas}", kind.server.name())
}

/// The value as a multiple of that of `limit` with as many streams in the same round; `None` if `limit` was not
/// measured.
fn ratio(kind: FanOutCase, samples: &[Sample], streams: &Streams, value: fn(&Sample) -> f64) -> Option<f64> {
    let least = FanOutCase { server: Server::Limit, era: None, replicated: false, ..kind };
    let (_, limit) = streams.fan_outs.iter().find(|(other, _)| *other == least)?;
    Some(median(samples.iter().zip(limit).map(|(own, least)| value(own) / value(least)).collect()))
}

fn of(samples: &[Sample], value: fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(bytes: f64, micros: f64, last: f64) -> Sample {
        Sample {
            bytes,
            server_micros: micros,
            client_micros: 1.5,
            answered: 2.0,
            first: 3.0,
            p50: 4.0,
            p99: 5.0,
            last,
            last_after_answer: last - 2.0,
        }
    }

    fn fan_outs(limit: Vec<Sample>, waggle: Vec<Sample>) -> Streams {
        let kind = |server, era, replicated| FanOutCase { server, era, streams: 500, replicated };
        let alone = vec![sample(1024.0, 6.0, 8.0)];
        Streams {
            fan_outs: vec![
                (kind(Server::Limit, None, false), limit),
                (kind(Server::Waggle, Some(Era::Legacy), false), alone),
                (kind(Server::Waggle, Some(Era::Modern), true), waggle),
            ],
            ..Streams::default()
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_ratios_of_each_round() {
        let limit = vec![sample(1024.0, 4.0, 6.0), sample(2048.0, 5.0, 8.0), sample(1024.0, 10.0, 7.0)];
        let waggle = vec![sample(2048.0, 8.0, 9.0), sample(3072.0, 5.0, 9.0), sample(1024.0, 12.0, 9.0)];
        let report = render(&fan_outs(limit, waggle));
        let rows = [
            "| 500 | – | limit | 1.0 | 1.00 | 5.0 | 1.00 | 2.0 | 3.0 | 4.0 | 5.0 | 7.0 | 5.0 |",
            "| 500 | 2025-11-25 | waggle | 1.0 | 1.00 | 6.0 | 1.50 | 2.0 | 3.0 | 4.0 | 5.0 | 8.0 | 6.0 |",
            "| 500 | 2026-07-28 | waggle, 2 replicas | 2.0 | 1.50 | 8.0 | 1.20 | 2.0 | 3.0 | 4.0 | 5.0 | 9.0 | 7.0 |",
        ];
        assert!(rows.iter().all(|row| report.contains(row)), "{report}");
        assert!(!report.contains("another replica"), "{report}");
    }

    #[test]
    fn stream_counts_above_the_open_file_limit_are_reported() {
        let streams = Streams { left_out: vec![5000], descriptors: 1024, ..Streams::default() };
        let report = render(&streams);
        assert!(report.contains("Not measured with [5000] streams: no more than 1024 files"), "{report}");
    }

    #[test]
    fn latency_between_replicas_is_reported_in_milliseconds() {
        let mut relayed = Relayed::new(Era::Legacy);
        relayed.alone.record(Duration::from_micros(1500));
        let report = render(&Streams { relayed: vec![relayed], others: vec![700.0], ..Streams::default() });
        assert!(report.contains("| undisturbed | 2025-11-25 | 1 | 1.5 | 1.5 | 1.5 |"), "{report}");
        assert!(report.contains("700 times a second together"), "{report}");
    }
}
