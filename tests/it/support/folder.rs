//! Folders in which gateways run, and the processes that they start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A temporary folder that every user may traverse, with the data directory of a gateway.
pub(crate) struct TestFolder {
    pub(crate) root: TempDir,
}

impl TestFolder {
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

pub(crate) fn kill_hard(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

/// Sends a signal to processes, of which some may have ended.
pub(crate) fn signal_all(processes: &[Pid], signal: Signal) {
    for process in processes {
        kill(*process, signal).ok();
    }
}

pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let output = std::process::Command::new("pgrep").args(["-P", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}
