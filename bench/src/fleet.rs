//! The servers of a run: started together, asked for by what is to be measured, stopped together.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::cases::{self, CASES, Case, Era};
use crate::cpu::Postgres;
use crate::error::Error;
use crate::load::Target;
use crate::options::{Options, Server, own_binary};
use crate::process::{self, Process};
use crate::waggle::Waggle;

/// How long a comparison server may take to answer.
pub(crate) const START: Duration = Duration::from_secs(10);
/// As long as an agent key, for the servers that do not look at it.
const NO_KEY: &str = "bak_0000000000000000000000000000000000000000000000000";

/// A case in one of its eras: a group of rows in the report.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    /// Its place in [`subjects`].
    index: usize,
    pub(crate) case: &'static Case,
    pub(crate) era: Era,
}

/// Everything to measure, in the order of the report.
pub(crate) fn subjects() -> impl Iterator<Item = Subject> {
    let each = CASES.iter().flat_map(|case| case.eras.iter().map(move |era| (case, *era)));
    each.enumerate().map(|(index, (case, era))| Subject { index, case, era })
}

/// The servers that run. There is a `limit` for each subject, since each has its own answer.
#[derive(Default)]
pub(crate) struct Fleet {
    limits: Vec<Process>,
    rmcp: Option<Process>,
    unaudited: Option<Waggle>,
    waggle: Option<Waggle>,
}

impl Fleet {
    /// Starts the servers asked for, with their files below `dir`, and waits until they answer.
    pub(crate) async fn start(&mut self, options: &Options, dir: &Path) -> Result<(), Error> {
        if options.measures(Server::Waggle) {
            let waggle = Waggle::start(&options.waggle_binary()?, dir, &[])?;
            self.waggle.insert(waggle).furnish().await?;
        }
        if options.measures(Server::Unaudited) {
            let dir = dir.join("unaudited");
            fs::create_dir(&dir).map_err(Error::io("create a directory"))?;
            fs::set_permissions(&dir, Permissions::from_mode(0o711))
                .map_err(Error::io("open a directory"))?;
            let changes = [("WAGGLE_AUDIT__EVENTS", "changes")];
            let waggle = Waggle::start(&options.waggle_binary()?, &dir, &changes)?;
            self.unaudited.insert(waggle).furnish().await?;
        }
        if options.measures_reads() && options.measures(Server::Rmcp) {
            let process = start_own(Server::Rmcp, &["serve-rmcp".to_owned()], lifetime(options), dir)?;
            self.rmcp.insert(process).ready("/", false, START).await?;
        }
        if options.measures_reads() && options.measures(Server::Limit) {
            for subject in subjects() {
                self.start_limit(subject, lifetime(options), dir).await?;
            }
        }
        Ok(())
    }

    /// Stops whatever runs.
    pub(crate) async fn stop(self) {
        for process in self.limits.into_iter().chain(self.rmcp) {
            process.stop().await;
        }
        for waggle in self.unaudited.into_iter().chain(self.waggle) {
            waggle.stop().await;
        }
    }

    /// Where the load for `subject` goes at `server`, and the id of the process that bears it.
    pub(crate) fn target(&self, server: Server, subject: Subject) -> Option<(Target<'_>, u32)> {
        let (process, keys) = match server {
            Server::Limit => (self.limits.get(subject.index)?, None),
            Server::Rmcp => (self.rmcp.as_ref()?, None),
            Server::Unaudited | Server::Waggle => {
                let waggle = self.gateway(server)?;
                (&waggle.process, Some(&waggle.keys))
            }
        };
        let key = keys.and_then(|keys| keys.get(subject.case.agent)).map_or(NO_KEY, String::as_str);
        let Subject { case, era, .. } = subject;
        Some((Target { server: server.name(), port: process.port, case, era, key }, process.pid))
    }

    /// The gateway, where it is measured.
    pub(crate) fn waggle(&self) -> Option<&Waggle> {
        self.waggle.as_ref()
    }

    /// The database beside `server`, where it has one.
    pub(crate) fn postgres(&self, server: Server) -> Option<&Postgres> {
        self.gateway(server).map(|waggle| &waggle.postgres)
    }

    fn gateway(&self, server: Server) -> Option<&Waggle> {
        match server {
            Server::Limit | Server::Rmcp => None,
            Server::Unaudited => self.unaudited.as_ref(),
            Server::Waggle => self.waggle.as_ref(),
        }
    }

    /// Starts a `limit` that answers what the gateway, or else the SDK, answers to `subject`.
    async fn start_limit(&mut self, subject: Subject, lifetime: Duration, dir: &Path) -> Result<(), Error> {
        let model = [Server::Waggle, Server::Unaudited, Server::Rmcp]
            .into_iter()
            .find_map(|server| self.target(server, subject));
        let (model, _) = model.ok_or(Error::LimitAlone)?;
        let answer = dir.join(format!("answer-{}.json", subject.index));
        fs::write(&answer, model.sample().await?).map_err(Error::io("keep an answer for `limit`"))?;
        let args = [
            "serve-limit".to_owned(),
            format!("--route={}", cases::path(subject.case.agent)),
            format!("--answer={}", answer.display()),
        ];
        let mut process = start_own(Server::Limit, &args, lifetime, dir)?;
        process.ready("/", false, START).await?;
        self.limits.push(process);
        Ok(())
    }
}

/// Twice what a run should take: after this a comparison server ends by itself, whatever has become of the run.
pub(crate) fn lifetime(options: &Options) -> Duration {
    let measurements =
        options.rounds.saturating_mul(u32::try_from(4 * subjects().count()).unwrap_or(u32::MAX));
    (options.duration() + Duration::from_secs(2)) * measurements * 2 + Duration::from_mins(5)
}

pub(crate) fn start_own(
    server: Server,
    args: &[String],
    lifetime: Duration,
    dir: &Path,
) -> Result<Process, Error> {
    let port = process::free_port()?;
    let mut command = Command::new(own_binary()?);
    command.args(args).arg(format!("--port={port}")).arg(format!("--seconds={}", lifetime.as_secs()));
    Process::start(server.name(), command, port, dir)
}
