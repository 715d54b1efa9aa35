//! Runs a program under a guardian, a small shell script that stops it when the owning process ends, even by `SIGKILL`.
//!
//! A killed process cannot clean up, but the operating system closes its end of a pipe. A parent-death signal would be
//! shorter, but exists on Linux only, is bound to a thread, and needs unsafe code.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::account::Account;
use crate::log::Log;

const SCRIPT: &str = include_str!("guardian.sh");
/// How long the process may take to exit after the guardian's last signal.
const MARGIN: Duration = Duration::from_secs(5);

/// Runs programs under a guardian.
#[derive(Debug)]
pub(super) struct Guardian {
    pub(super) account: Account,
    pub(super) log: Log,
    /// The value of `PATH` for the script.
    pub(super) path: Option<OsString>,
    /// How long a program may take after `SIGINT`, and then after `SIGQUIT`. Whole seconds.
    pub(super) grace: Duration,
}

/// A program that is stopped when this is dropped or the owning process ends.
#[derive(Debug)]
pub(super) struct GuardedProcess {
    guardian: Child,
    pipe: ChildStdin,
    grace: Duration,
}

impl Guardian {
    /// Runs `program` in `folder`, which its user must be able to enter.
    ///
    /// It inherits no environment variables, which may contain secrets. `socket` is removed after a stop.
    pub(super) fn spawn(&self, program: &Program<'_>) -> io::Result<GuardedProcess> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("guardian");
        command.arg(program.socket.unwrap_or(Path::new(""))).arg(self.grace.as_secs().to_string());
        command.arg(program.path).args(&program.arguments);
        command.env_clear().env("LC_ALL", "C").env("TZ", "UTC");
        command.env("PATH", self.path.as_deref().unwrap_or("/usr/bin:/bin".as_ref()));
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(program.folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(self.log.writer()?).stderr(self.log.writer()?);
        self.account.run(&mut command);
        let mut guardian = command.spawn()?;
        // Taken out of the child, since waiting for it closes its standard input.
        let pipe = guardian.stdin.take().ok_or_else(|| io::Error::other("no pipe to the guardian"))?;
        Ok(GuardedProcess { guardian, pipe, grace: self.grace })
    }
}

/// A program to run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) path: &'a Path,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) folder: &'a Path,
    pub(super) socket: Option<&'a Path>,
}

impl GuardedProcess {
    /// Waits for the program to exit on its own.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.guardian.wait().await
    }

    /// Stops the program; returns whether it exited in time.
    pub(super) async fn stop(self) -> bool {
        let Self { mut guardian, pipe, grace } = self;
        drop(pipe);
        timeout(2 * grace + MARGIN, guardian.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    const GRACE: Duration = Duration::from_secs(1);
    /// The variable that makes [`program`] run, with the signal at which it exits.
    const EXITS_AT: &str = "EXITS_AT";

    /// How a program was stopped.
    #[derive(Debug)]
    struct Stopped {
        /// What it got, each signal once.
        got: Vec<String>,
        /// How long it took.
        took: Duration,
        /// Whether the folder of its socket was removed.
        is_cleaned_up: bool,
    }

    /// Runs [`program`] under a guardian, and stops it once it handles signals.
    async fn stopped(exits_at: &str) -> Stopped {
        let folder = tempfile::tempdir().unwrap();
        // The program's user removes the folder of the socket.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let socket = folder.path().join("socket");
        std::fs::create_dir(&socket).unwrap();
        let log = Log::open(folder.path().join("log")).unwrap();
        let guardian = Guardian { account: Account::select().unwrap(), log, path: None, grace: GRACE };
        let program = Program {
            path: &std::env::current_exe().unwrap(),
            arguments: ["--exact", "--nocapture", "guardian::tests::program"].map(OsString::from).into(),
            environment: vec![(EXITS_AT, exits_at.to_owned())],
            folder: folder.path(),
            socket: Some(&socket),
        };
        let guarded = guardian.spawn(&program).unwrap();
        let signals = || {
            let text = guardian.log.quote(0);
            text.lines().filter_map(|line| line.strip_prefix("got ")).map(str::to_owned).collect::<Vec<_>>()
        };
        while signals().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        assert!(guarded.stop().await);
        let mut got = signals();
        got.dedup();
        Stopped { got, took: began.elapsed(), is_cleaned_up: !socket.exists() }
    }

    /// The program of [`stopped`]; as a test, it does nothing. A shell cannot handle a signal that its parent ignores.
    #[tokio::test]
    async fn program() {
        let Ok(exits_at) = std::env::var(EXITS_AT) else { return };
        let mut interrupt = signal(SignalKind::interrupt()).unwrap();
        let mut quit = signal(SignalKind::quit()).unwrap();
        println!("\ngot none");
        loop {
            let got = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = quit.recv() => "SIGQUIT",
            };
            println!("got {got}");
            if got == exits_at {
                std::process::exit(3);
            }
        }
    }

    #[tokio::test]
    async fn a_program_gets_sigint_then_sigquit_then_sigkill() {
        let (interrupted, quit, killed) =
            tokio::join!(stopped("SIGINT"), stopped("SIGQUIT"), stopped("none"));
        assert_eq!(interrupted.got, ["none", "SIGINT"]);
        assert_eq!(quit.got, ["none", "SIGINT", "SIGQUIT"]);
        assert_eq!(killed.got, ["none", "SIGINT", "SIGQUIT"]);
        assert!(quit.took >= GRACE, "{quit:?}");
        assert!(killed.took >= 2 * GRACE, "{killed:?}");
        assert_eq!([interrupted, quit, killed].map(|stopped| stopped.is_cleaned_up), [true, true, false]);
    }

    #[tokio::test]
    async fn signals_that_the_owner_ignores_stop_a_program_too() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "trap '' HUP INT QUIT TERM; exec \"$0\" \"$@\""]);
        shell.arg(std::env::current_exe().unwrap());
        shell.args(["--exact", "guardian::tests::a_program_gets_sigint_then_sigquit_then_sigkill"]);
        let tested = shell.output().await.unwrap();
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    }
}
