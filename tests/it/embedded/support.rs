//! Helpers of the tests: data directories, conditions, processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use embedded_postgres::EmbeddedOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The longest that any single step of a test may take, on a machine that is busy with others.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A data directory below a folder that every user may pass through.
pub(crate) struct Place {
    pub(crate) root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { root }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn postmaster(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }
}

/// Options for a database whose files nobody will miss.
pub(crate) fn options(data_dir: &Path) -> EmbeddedOptions {
    let path = std::env::var_os("PATH");
    EmbeddedOptions { durable: false, path, ..EmbeddedOptions::new("waggle", data_dir) }
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn kill_hard(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let output = std::process::Command::new("pgrep").args(["-P", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}
