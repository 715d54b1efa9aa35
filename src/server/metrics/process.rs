//! What the operating system reports of this process, under the names that all Prometheus client libraries use.

use std::fs;
use std::time::Duration;

use crate::telemetry::exposition::{Exposition, Kind, Value};

/// The milliseconds of a clock tick in files of `/proc`, on all architectures.
const TICK: u64 = 10;

/// Writes the metrics; only their families where there is no `/proc`.
pub(super) fn render(out: &mut Exposition, started: f64) {
    let help = "The version of the gateway; always 1.";
    let mut family = out.family("waggle_build_info", Kind::Gauge, help);
    family.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u8);
    let help = "When the gateway started, in seconds since 1970.";
    out.gauge("process_start_time_seconds", help, started);
    let [stat, status, limits] = ["stat", "status", "limits"].map(read);
    let help = "CPU time of the process.";
    optional(out, ("process_cpu_seconds_total", Kind::Counter), help, cpu_seconds(&stat));
    let help = "Memory of the process that is resident.";
    optional(out, ("process_resident_memory_bytes", Kind::Gauge), help, kibibytes(&status, "VmRSS:"));
    let help = "Address space of the process.";
    optional(out, ("process_virtual_memory_bytes", Kind::Gauge), help, kibibytes(&status, "VmSize:"));
    let help = "Threads of the process.";
    optional(out, ("process_threads", Kind::Gauge), help, field(&status, "Threads:", 0));
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    optional(out, ("process_open_fds", Kind::Gauge), "Open files and sockets.", open);
    let most = field(&limits, "Max open files", 0);
    optional(out, ("process_max_fds", Kind::Gauge), "The limit of open files and sockets.", most);
}

fn read(name: &str) -> String {
    fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}

fn optional<T: Into<Value>>(
    out: &mut Exposition,
    (name, kind): (&'static str, Kind),
    help: &'static str,
    value: Option<T>,
) {
    let mut family = out.family(name, kind, help);
    if let Some(value) = value {
        family.sample(&[], value);
    }
}

/// The user and system time of `/proc/self/stat`. The name before them may contain anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(Duration::from_millis(user.saturating_add(system).saturating_mul(TICK)).as_secs_f64())
}

/// The nth word after the name of a line.
fn field(text: &str, name: &str, nth: usize) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().nth(nth)?.parse().ok()
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    field(text, name, 0).map(|number| number * 1_024)
}

#[cfg(test)]
mod tests {
    use super::{cpu_seconds, field, kibibytes};

    #[test]
    fn files_of_proc_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 9 0 100 1 2";
        assert_eq!(cpu_seconds(stat), Some(1.75));
        let months = stat.replace("150 25", "5000000000 25");
        assert_eq!(cpu_seconds(&months), Some(50_000_000.25));
        assert_eq!(cpu_seconds(""), None);
        let status = "Name:\twaggle\nVmRSS:\t    2048 kB\nThreads:\t9\n";
        assert_eq!((kibibytes(status, "VmRSS:"), field(status, "Threads:", 0)), (Some(2 << 20), Some(9)));
        let limits = "Max open files            1024                 4096                 files\n";
        assert_eq!(field(limits, "Max open files", 0), Some(1_024));
        assert_eq!(field(limits, "Max processes", 0), None);
    }
}
