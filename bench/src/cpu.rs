//! CPU time of processes, from Linux's `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;

/// The unit of process times, `USER_HZ`: 100 on every architecture that Rust's standard library supports.
const TICK: Duration = Duration::from_millis(10);

/// The fields of `/proc/PID/stat` that are used.
struct Stat {
    command: String,
    parent: u32,
    group: u32,
    /// User and system time of all threads.
    own: u64,
    /// The same of exited and reaped children.
    reaped: u64,
}

/// The CPU time that all threads of a process have used so far, without its children.
pub(crate) fn of_process(pid: u32) -> Result<Duration, Error> {
    Ok(ticks(stat(pid)?.own))
}

/// The busy time of the whole machine so far, stolen time included.
pub(crate) fn of_machine() -> Result<Duration, Error> {
    let path = "/proc/stat";
    let busy = fs::read_to_string(path).ok().and_then(|text| busy(&text));
    Ok(ticks(busy.ok_or_else(|| Error::Proc(path.to_owned()))?))
}

/// See `proc_stat(5)`: user, nice, system, idle, iowait, irq, softirq, steal.
fn busy(text: &str) -> Option<u64> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let fields: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let waiting = fields.get(3)? + fields.get(4)?;
    Some(fields.get(..8)?.iter().sum::<u64>() - waiting)
}

/// The processes of a server's private PostgreSQL.
pub(crate) struct Postgres {
    /// The server that started it.
    pub(crate) server: u32,
    /// Its data directory, which is the working directory of its processes: so they are found even outside of the
    /// server's process group.
    pub(crate) data_dir: PathBuf,
}

impl Postgres {
    /// The CPU time of all its processes so far, of exited ones too.
    pub(crate) fn cpu(&self) -> Duration {
        ticks(self.members().map(|(_, stat)| stat.own + stat.reaped).sum())
    }

    /// The ids of its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.members().map(|(pid, _)| pid).collect()
    }

    fn members(&self) -> impl Iterator<Item = (u32, Stat)> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid| Some((pid, stat(pid).ok()?)))
            .filter(|(_, stat)| stat.command == "postgres")
            .filter(|(pid, stat)| self.owns(*pid, stat))
    }

    fn owns(&self, pid: u32, stat: &Stat) -> bool {
        stat.group == self.server || stat.parent == self.server || works_in(pid, &self.data_dir)
    }
}

fn works_in(pid: u32, dir: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}

fn stat(pid: u32) -> Result<Stat, Error> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).ok().and_then(|line| parse(&line));
    stat.ok_or(Error::Proc(path))
}

/// See `proc_pid_stat(5)`. The command is in parentheses and may itself contain any character.
fn parse(line: &str) -> Option<Stat> {
    let (front, fields) = line.rsplit_once(')')?;
    let (_, command) = front.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // Index 0 is the manual page's field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        command: command.to_owned(),
        parent: u32::try_from(field(4)?).ok()?,
        group: u32::try_from(field(5)?).ok()?,
        own: field(14)? + field(15)?,
        reaped: field(16)? + field(17)?,
    })
}

fn ticks(count: u64) -> Duration {
    TICK * u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_and_spaces_in_a_command_do_not_shift_fields() {
        let stat = parse("42 (a) b (c) S 7 8 9 0 -1 0 0 0 0 0 100 20 3 4 20 0 1").unwrap();
        assert_eq!(stat.command, "a) b (c");
        assert_eq!((stat.parent, stat.group, stat.own, stat.reaped), (7, 8, 120, 7));
    }

    #[test]
    fn waiting_is_not_busy_and_guest_time_is_counted_once() {
        assert_eq!(busy("cpu  1 2 4 1000 1000 8 16 32 1000 1000\ncpu0 5"), Some(63));
        assert_eq!(busy("cpu  1 2 4"), None);
    }

    #[test]
    fn work_of_this_process_is_measured() {
        let before = of_process(std::process::id()).unwrap();
        let end = std::time::Instant::now() + Duration::from_millis(200);
        while std::time::Instant::now() < end {}
        assert!(of_process(std::process::id()).unwrap() > before);
    }

    #[test]
    fn missing_process_is_an_error() {
        assert!(of_process(u32::MAX).is_err());
    }
}
