//! The same statements without a gateway: `pgbench` on the gateway's own database.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::error::{Error, excerpt};

/// The statements of one write of the gateway, as a script of `pgbench`.
const SCRIPT: &str = include_str!("pgbench.sql");
/// How long it may take to connect and to exit, in addition to its duration.
const GRACE: Duration = Duration::from_secs(30);

/// `pgbench`, prepared for a database.
pub(crate) struct Pgbench {
    script: PathBuf,
    socket: PathBuf,
}

impl Pgbench {
    /// Prepares it for the private database in `data_dir`; `None` if `pgbench` is not installed.
    pub(crate) async fn find(data_dir: &Path, dir: &Path) -> Result<Option<Self>, Error> {
        let version = Command::new("pgbench").arg("--version").stdout(Stdio::null()).status().await;
        if !version.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let socket = fs::read_to_string(data_dir.join("embedded.socket"))
            .map_err(Error::io("find the socket of the gateway's database"))?;
        let script = dir.join("pgbench.sql");
        fs::write(&script, SCRIPT).map_err(Error::io("write the script of pgbench"))?;
        Ok(Some(Self { script, socket: socket.into() }))
    }

    /// Disables or enables inserts into the audit outbox.
    pub(crate) async fn set_outbox_disabled(&self, disabled: bool) -> Result<(), Error> {
        let statement = if disabled {
            "create or replace function bench_nothing() returns trigger language plpgsql as 'begin return null; end'; \
             create trigger bench_nothing before insert on audit_outbox for each row execute function bench_nothing()"
        } else {
            "drop trigger if exists bench_nothing on audit_outbox"
        };
        let mut command = Command::new("psql");
        command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", statement]);
        command.arg("--host").arg(&self.socket).args(["--username=waggle", "waggle"]);
        let output = timeout(GRACE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
        let output = output.map_err(|_| Error::Pgbench("psql did not exit".to_owned()))?;
        let output = output.map_err(Error::io("run psql"))?;
        if output.status.success() { Ok(()) } else { Err(Error::Pgbench(excerpt(&output.stderr))) }
    }

    /// Runs `clients` for `duration`; returns the transactions per second.
    pub(crate) async fn run(&self, clients: usize, duration: Duration) -> Result<f64, Error> {
        let mut command = Command::new("pgbench");
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2"]);
        command.arg(format!("--client={clients}")).arg(format!("--time={}", duration.as_secs()));
        command.arg("--file").arg(&self.script).arg("--host").arg(&self.socket);
        command.args(["--username=waggle", "waggle"]).stdin(Stdio::null()).kill_on_drop(true);
        let late = |_| Error::Pgbench(format!("it did not exit within {} s", (duration + GRACE).as_secs()));
        let output = timeout(duration + GRACE, command.output()).await.map_err(late)?;
        let output = output.map_err(Error::io("run pgbench"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match tps(&text) {
            Some(tps) if output.status.success() => Ok(tps),
            _ => Err(Error::Pgbench(excerpt(&output.stderr))),
        }
    }
}

/// Reads the line `tps = 1234.5 (without initial connection time)`.
fn tps(output: &str) -> Option<f64> {
    output.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::{SCRIPT, tps};

    /// The queries of the gateway, from the metadata of its build.
    fn queries() -> Vec<String> {
        let described = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.sqlx")).unwrap();
        let query = |file: fs::DirEntry| {
            let file: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
            plain(file["query"].as_str().unwrap())
        };
        described.map(|file| query(file.unwrap())).collect()
    }

    /// A statement without white space and without the marks and types in column names that only the build reads.
    fn plain(statement: &str) -> String {
        let mut quoted = false;
        let mut typed = false;
        let read = |c: &char| {
            quoted ^= *c == '"';
            typed = quoted && (typed || *c == ':');
            !typed && !c.is_whitespace() && !matches!(c, '"' | '!')
        };
        statement.chars().filter(read).collect()
    }

    /// Whether a statement is a query with a value in the place of each parameter.
    fn is(statement: &str, query: &str) -> bool {
        let pieces = query.split('$').map(|piece| piece.trim_start_matches(|c: char| c.is_ascii_digit()));
        let mut pieces: Vec<_> = pieces.collect();
        let last = pieces.pop().unwrap();
        let mut rest = Some(statement);
        for (at, piece) in pieces.into_iter().enumerate() {
            let split = rest.and_then(|rest| rest.split_once(piece));
            rest = split.filter(|(before, _)| at > 0 || before.is_empty()).map(|(_, after)| after);
        }
        rest.is_some_and(|rest| rest.ends_with(last))
    }

    #[test]
    fn every_statement_of_the_script_is_a_query_of_the_gateway() {
        let queries = queries();
        // One statement per line; `\gset` or `\aset` after it stores its result.
        let lines = SCRIPT.lines().filter(|line| !line.starts_with(['-', '\\']));
        let statements: Vec<_> = lines
            .map(|line| plain(line.split_once('\\').map_or(line, |(it, _)| it).trim_end_matches(';')))
            .collect();
        let (ends, statements): (Vec<_>, Vec<_>) =
            statements.iter().partition(|it| matches!(it.as_str(), "begin" | "commit"));
        assert_eq!(ends, ["begin", "commit"]);
        assert_eq!(statements.len(), 3);
        for statement in statements {
            assert!(queries.iter().any(|query| is(statement, query)), "{statement}");
        }
    }

    #[test]
    fn the_rate_is_read_from_the_summary() {
        let summary = "latency average = 3.2 ms\ninitial connection time = 8.0 ms\n\
                       tps = 9876.543210 (without initial connection time)\n";
        assert_eq!(tps(summary), Some(9876.54321));
        assert_eq!(tps("pgbench: error"), None);
    }
}
