//! PostgreSQL's own programs that copy a database to a file and back.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::account::Account;
use crate::error::{EmbeddedError, IoContext};
use crate::socket::PORT;

/// How much of what a failed program reported is quoted, in bytes.
const QUOTED: usize = 2_000;

/// The programs, and the server that they call.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) account: Account,
    /// The directory of the programs.
    pub(super) programs: PathBuf,
    /// The directory of the server's socket.
    pub(super) socket: PathBuf,
    /// The database, and its role.
    pub(super) name: String,
}

impl Tools {
    pub(super) async fn dump(&self, to: File) -> Result<(), EmbeddedError> {
        self.run("pg_dump", &["--format=custom"], Stdio::null(), to.into()).await
    }

    pub(super) async fn restore(&self, from: File) -> Result<(), EmbeddedError> {
        let whole = ["--exit-on-error", "--single-transaction", "--no-owner"];
        self.run("pg_restore", &whole, from.into(), Stdio::null()).await
    }

    /// Runs a program as the server's user, who alone can enter the socket's directory. It ends with this process's wait.
    async fn run(
        &self,
        program: &'static str,
        options: &[&str],
        input: Stdio,
        output: Stdio,
    ) -> Result<(), EmbeddedError> {
        let path = self.programs.join(program);
        let mut command = Command::new(&path);
        command.args(options).arg("--no-password").arg(format!("--port={PORT}"));
        command.arg(format!("--username={}", self.name)).arg(format!("--dbname={}", self.name));
        command.arg("--host").arg(&self.socket).current_dir(Path::new("/"));
        command.env_clear().env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        self.account.run(&mut command);
        let ended =
            command.spawn().context("run", &path)?.wait_with_output().await.context("wait for", &path)?;
        if ended.status.success() {
            return Ok(());
        }
        let reported = String::from_utf8_lossy(&ended.stderr);
        let reported = reported.trim();
        let from = reported.ceil_char_boundary(reported.len().saturating_sub(QUOTED));
        let output = reported[from..].to_owned();
        Err(EmbeddedError::ToolFailed { program, status: ended.status, output })
    }
}
