//! The report: medians over the rounds, ratios to `limit`, and the machine and versions.

use std::fs;
use std::process::Command;

use crate::fleet::Subject;
use crate::options::{Options, Server};

/// The result of one measurement; all CPU times are per request.
pub(crate) struct Sample {
    pub(crate) server_micros: f64,
    pub(crate) postgres_micros: f64,
    pub(crate) generator_micros: f64,
    /// The average number of cores that programs outside of the run kept busy.
    pub(crate) others_cores: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
}

/// One case in one era at one server, a sample per round.
pub(crate) struct Row {
    case: &'static str,
    era: &'static str,
    server: Server,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    pub(crate) fn new(subject: Subject, server: Server) -> Self {
        Self { case: subject.case.name, era: subject.era.version(), server, samples: Vec::new() }
    }

    /// CPU time of the server per request, in microseconds.
    fn cpu(&self) -> f64 {
        self.median(|sample| sample.server_micros)
    }

    fn median(&self, value: fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(value).collect())
    }

    /// The range of the rounds, in per cent of their median.
    fn spread(&self) -> f64 {
        let values = || self.samples.iter().map(|sample| sample.server_micros);
        let (least, most) = values().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
        100.0 * (most - least) / self.cpu()
    }

    /// The name under which its ratio is recorded; `None` for other servers than the gateway with full auditing.
    pub(crate) fn gate(&self) -> Option<String> {
        (self.server == Server::Waggle).then(|| format!("{}, {}", self.case, self.era))
    }

    /// Whether the row belongs to this subject.
    pub(crate) fn is_of(&self, subject: Subject) -> bool {
        self.case == subject.case.name && self.era == subject.era.version()
    }

    /// The cost as a multiple of that of `limit` for the same subject in the same round; `None` if `limit` was not
    /// measured.
    pub(crate) fn ratio(&self, rows: &[Self]) -> Option<f64> {
        let limit = rows
            .iter()
            .find(|row| row.server == Server::Limit && row.case == self.case && row.era == self.era)?;
        let rounds = self.samples.iter().zip(&limit.samples);
        Some(median(rounds.map(|(own, least)| own.server_micros / least.server_micros).collect()))
    }

    fn line(&self, rows: &[Self]) -> String {
        format!(
            "| {} | {} | {} | {:.1} | {} | {:.0} | {:.0} | {:.0} |",
            self.case,
            self.era,
            self.server.name(),
            self.cpu(),
            self.ratio(rows).map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            self.median(|sample| sample.per_second),
            self.median(|sample| sample.p50_micros),
            self.median(|sample| sample.p99_micros),
        )
    }
}

/// The middle value, or the mean of the two middle ones; NaN for none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

/// The reads as Markdown: their table, and how they were measured.
pub(crate) fn reads(rows: &[Row], options: &Options) -> String {
    let mut lines = vec![
        "| case | era | server | CPU µs/request | × limit | req/s | p50 µs | p99 µs |".to_owned(),
        "|---|---|---|--:|--:|--:|--:|--:|".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| row.line(rows)));
    lines.push(String::new());
    lines.push(method(rows, options));
    lines.extend(postgres(rows));
    lines.join("\n") + "\n"
}

/// The machine and the versions of everything that was measured.
pub(crate) fn setting(options: &Options) -> String {
    format!("{}\n{}\n", machine(), versions(options))
}

fn method(rows: &[Row], options: &Options) -> String {
    format!(
        "Medians of {} rounds of {} s, the servers taking turns, {} connections kept busy; × limit is the median \
         of the ratios within a round. The rounds of a row lie at most {:.0} % apart. The load generator used \
         {} µs per request, other programs {} cores; from some tenths of a core on they blur the ratios.",
        options.rounds,
        options.duration().as_secs(),
        options.connections,
        rows.iter().map(Row::spread).fold(0.0, f64::max),
        range(rows.iter().map(|row| row.median(|sample| sample.generator_micros))),
        range(rows.iter().map(|row| row.median(|sample| sample.others_cores))),
    )
}

fn postgres(rows: &[Row]) -> Option<String> {
    let used = |server: Server| {
        let mut rows = rows.iter().filter(|row| row.server == server).peekable();
        rows.peek()?;
        Some(range(rows.map(|row| row.median(|sample| sample.postgres_micros))))
    };
    let own = format!("Waggle's Postgres, not in its rows, used {} µs per request.", used(Server::Waggle)?);
    let bare =
        used(Server::Unaudited).map(|micros| format!(" Without accesses in the audit log: {micros} µs."));
    Some(own + &bare.unwrap_or_default())
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
    format!("{least:.1} to {most:.1}")
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or("?".to_owned(), |cores| cores.to_string());
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Machine: {cores} × {model}, Linux {}.", kernel.trim())
}

fn versions(options: &Options) -> String {
    let mut versions: Vec<String> =
        ["rmcp", "axum", "hyper", "tokio"].iter().map(|name| format!("{name} {}", locked(name))).collect();
    if options.measures(Server::Waggle) {
        versions.insert(0, waggle_version(options).unwrap_or_else(|| "waggle of unknown version".to_owned()));
    }
    format!("Versions: {}.", versions.join(", "))
}

/// The version of a package in the lock file of this build; the newest if there are several.
fn locked(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"\nversion = \"");
    let lock = include_str!("../../Cargo.lock");
    lock.rsplit_once(&name).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?")
}

fn waggle_version(options: &Options) -> Option<String> {
    let output = Command::new(options.waggle_binary().ok()?).arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!version.is_empty()).then_some(version)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fleet::subjects;

    fn row(server: Server, cpu: &[f64]) -> Row {
        let mut row = Row::new(subjects().next().unwrap(), server);
        row.samples = cpu
            .iter()
            .map(|&server_micros| Sample {
                server_micros,
                postgres_micros: 0.0,
                generator_micros: 5.0,
                others_cores: 0.0,
                per_second: 60_000.4,
                p50_micros: 200.0,
                p99_micros: 900.0,
            })
            .collect();
        row
    }

    /// The rows of the first subject at the bare handler and at the gateway.
    pub(crate) fn rows(limit: &[f64], waggle: &[f64]) -> [Row; 2] {
        [row(Server::Limit, limit), row(Server::Waggle, waggle)]
    }

    #[test]
    fn row_is_the_median_of_its_rounds_and_of_their_ratios() {
        let rows = [row(Server::Limit, &[10.0, 40.0, 12.0]), row(Server::Waggle, &[18.0, 64.0, 12.0])];
        assert_eq!(
            rows[1].line(&rows),
            "| resources/read 1 KiB | 2026-07-28 | waggle | 18.0 | 1.60 | 60000 | 200 | 900 |"
        );
    }

    #[test]
    fn ratio_is_absent_without_limit() {
        let rows = [row(Server::Rmcp, &[18.0, 20.0])];
        assert_eq!(
            rows[0].line(&rows),
            "| resources/read 1 KiB | 2026-07-28 | rmcp | 19.0 | – | 60000 | 200 | 900 |"
        );
    }

    #[test]
    fn the_lock_file_names_the_versions() {
        assert!(locked("rmcp").starts_with("3."));
        assert_eq!(locked("no-such-package"), "?");
    }
}
