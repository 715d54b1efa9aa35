//! Runs a program under a guardian, a small shell script that ends it when the gateway ends, however that ends.
//!
//! A process that is killed cannot clean up, but the operating system closes its end of a pipe. A signal on the
//! parent's death would be shorter, but exists on Linux only and needs unsafe code.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::account::Account;
use super::log::Log;

const SCRIPT: &str = include_str!("guardian.sh");
/// How long the operating system may take after the guardian's last signal.
const MARGIN: Duration = Duration::from_secs(5);

/// How guarded programs are run.
#[derive(Debug)]
pub(super) struct Guardian {
    pub(super) account: Account,
    pub(super) log: Log,
    /// The value of `PATH` for the script.
    pub(super) path: Option<OsString>,
    /// How long a program has to end when it is asked to, and then again when it is told to. Whole seconds.
    pub(super) grace: Duration,
}

/// A program that ends when this is dropped, or the gateway ends.
#[derive(Debug)]
pub(super) struct Guarded {
    guardian: Child,
    pipe: ChildStdin,
    grace: Duration,
}

impl Guardian {
    /// Runs `program` in `folder`, which its user must be able to enter.
    ///
    /// It inherits nothing of the environment, where the gateway's secrets may stand. `socket` is removed when
    /// it was ended.
    pub(super) fn spawn(&self, program: &Program<'_>) -> io::Result<Guarded> {
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
        // Taken out, because waiting for a child closes its standard input.
        let pipe = guardian.stdin.take().ok_or_else(|| io::Error::other("no pipe to the guardian"))?;
        Ok(Guarded { guardian, pipe, grace: self.grace })
    }
}

/// What to run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) path: &'a Path,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) folder: &'a Path,
    pub(super) socket: Option<&'a Path>,
}

impl Guarded {
    /// Waits until the program has ended by itself.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.guardian.wait().await
    }

    /// Ends the program and waits for that; says whether it did end in time.
    pub(super) async fn end(self) -> bool {
        let Self { mut guardian, pipe, grace } = self;
        drop(pipe);
        timeout(2 * grace + MARGIN, guardian.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    /// Runs a shell script under a guardian, lets it go when it has said `up`, and returns how long it lived on.
    async fn outlived(script: &str) -> Duration {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let log = Log::open(folder.path().join("log")).unwrap();
        let guardian = Guardian { account: Account::fitting().unwrap(), log, path: None, grace: GRACE };
        let program = Program {
            path: Path::new("/bin/sh"),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            folder: folder.path(),
            socket: None,
        };
        let guarded = guardian.spawn(&program).unwrap();
        while guardian.log.quote(0) != "up" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        assert!(guarded.end().await);
        began.elapsed()
    }

    #[tokio::test]
    async fn a_program_is_asked_then_told_then_killed() {
        let (asked, told, killed) = tokio::join!(
            outlived("trap 'exit 3' INT; echo up; while :; do sleep 0.01; done"),
            outlived("trap '' INT; trap 'exit 3' QUIT; echo up; while :; do sleep 0.01; done"),
            outlived("trap '' INT QUIT; echo up; while :; do sleep 0.01; done"),
        );
        assert!(asked < GRACE, "{asked:?}");
        assert!((GRACE..2 * GRACE).contains(&told), "{told:?}");
        assert!((2 * GRACE..2 * GRACE + MARGIN).contains(&killed), "{killed:?}");
    }
}
