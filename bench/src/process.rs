//! Servers in processes of their own: started, awaited, and stopped by their id.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::error::Error;
use crate::http::{self, Connection};
use crate::memory;

const POLL: Duration = Duration::from_millis(50);
const STOP: Duration = Duration::from_secs(20);
const LOG_LINES: usize = 20;

/// A running server. Dropping it kills it; [`Process::stop`] shuts it down in order.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) pid: u32,
    pub(crate) port: u16,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, which listens on `port`, in a process group of its own, with its output in a file of `dir`.
    pub(crate) fn start(
        name: &'static str,
        mut command: Command,
        port: u16,
        dir: &Path,
    ) -> Result<Self, Error> {
        let doing = || Error::io(format!("start {name}"));
        let log = dir.join(format!("{name}-{port}.log"));
        let output = File::create(&log).map_err(doing())?;
        command.stdout(output.try_clone().map_err(doing())?).stderr(output).stdin(Stdio::null());
        let child = command.process_group(0).kill_on_drop(true).spawn().map_err(doing())?;
        let pid = child.id().ok_or_else(|| io::Error::other("it exited at once")).map_err(doing())?;
        Ok(Self { name, pid, port, child, log })
    }

    /// Waits until `GET path` is answered; with `200` if that is required.
    pub(crate) async fn ready(
        &mut self,
        path: &str,
        must_be_200: bool,
        within: Duration,
    ) -> Result<(), Error> {
        let request = http::request("GET", path, self.port, &[], None);
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let status = self.child.try_wait().map_err(Error::io(format!("look after {}", self.name)))?;
            if let Some(status) = status {
                return Err(Error::EndedEarly { server: self.name, status, log: self.log_tail() });
            }
            let answer = timeout(Duration::from_secs(1), status_of(self.port, &request)).await;
            if matches!(answer, Ok(Ok(status)) if status == 200 || !must_be_200) {
                return Ok(());
            }
            sleep(POLL).await;
        }
        Err(Error::NotReady { server: self.name, seconds: within.as_secs(), log: self.log_tail() })
    }

    /// Requests a shutdown and kills the process if it is still running after 20 s. Returns whether it exited in time.
    pub(crate) async fn stop(mut self) -> bool {
        signal(self.pid, Signal::SIGTERM);
        let ended = timeout(STOP, self.child.wait()).await.is_ok();
        if !ended {
            let _already_gone = self.child.kill().await;
        }
        ended
    }

    /// Waits until it has exited by itself, with success; returns the most memory that was resident, in bytes.
    pub(crate) async fn finish(mut self, within: Duration) -> Result<u64, Error> {
        let deadline = Instant::now() + within;
        let mut most = 0;
        loop {
            // A process that has exited has none.
            most = most.max(memory::peak_of_process(self.pid).unwrap_or_default());
            let status = self.child.try_wait().map_err(Error::io(format!("look after {}", self.name)))?;
            match status {
                Some(status) if status.success() => return Ok(most),
                Some(status) => {
                    return Err(Error::CommandFailed { command: self.name, status, log: self.log_tail() });
                }
                None if Instant::now() > deadline => {
                    return Err(Error::TimedOut { server: self.name, seconds: within.as_secs() });
                }
                None => sleep(POLL).await,
            }
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

async fn status_of(port: u16, request: &[u8]) -> Result<u16, Error> {
    Ok(Connection::open(port).await?.exchange(request).await?.status)
}

/// Signals a process of this run; an exited one is ignored.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _already_gone = kill(Pid::from_raw(pid), signal);
    }
}

/// A port of the loopback address that is free at the moment.
pub(crate) fn free_port() -> Result<u16, Error> {
    let doing = || Error::io("find a free port on 127.0.0.1");
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(doing())?;
    Ok(listener.local_addr().map_err(doing())?.port())
}
