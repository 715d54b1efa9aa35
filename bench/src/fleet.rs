//! The servers of a run: started together, looked up by what is measured, stopped together.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::cases::{self, CASES, Case, Era};
use crate::cpu::Postgres;
use crate::error::Error;
use crate::load::Target;
use crate::options::{Options, Server, own_binary};
use crate::process::{self, Process};
use crate::waggle::{Waggle, allow_passage};

/// The timeout for a comparison server to answer.
pub(crate) const START: Duration = Duration::from_secs(10);
/// Has the length of an agent key, for the servers that ignore it.
const NO_KEY: &str = "bak_0000000000000000000000000000000000000000000000000";

/// A case in one of its eras: a group of rows in the report.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    /// Its index in [`subjects`].
    index: usize,
    pub(crate) case: &'static Case,
    pub(crate) era: Era,
}

/// All subjects, in the order of the report.
pub(crate) fn subjects() -> impl Iterator<Item = Subject> {
    let each = CASES.iter().flat_map(|case| case.eras.iter().map(move |era| (case, *era)));
    each.enumerate().map(|(index, (case, era))| Subject { index, case, era })
}

/// The running servers. There is one `limit` per subject, since each has its own answer.
#[derive(Default)]
pub(crate) struct Fleet {
    limits: Vec<Process>,
    rmcp: Option<Process>,
    unaudited: Option<Waggle>,
    waggle: Option<Waggle>,
}

impl Fleet {
    /// Starts the requested servers, with their files below `dir`, and waits until they answer.
    pub(crate) async fn start(&mut self, options: &Options, dir: &Path) -> Result<(), Error> {
        if options.measures(Server::Waggle) {
            let waggle = Waggle::start(&options.waggle_binary()?, dir, &[])?;
            self.waggle.insert(waggle).register_fixture().await?;
        }
        if options.measures(Server::Unaudited) {
            let dir = dir.join("unaudited");
            fs::create_dir(&dir).map_err(Error::io("create a directory"))?;
            allow_passage(&dir)?;
            let changes = [("WAGGLE_AUDIT__EVENTS", "changes")];
            let waggle = Waggle::start(&options.waggle_binary()?, &dir, &changes)?;
            self.unaudited.insert(waggle).register_fixture().await?;
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

    /// Stops all running servers.
    pub(crate) async fn stop(self) {
        for process in self.limits.into_iter().chain(self.rmcp) {
            process.stop().await;
        }
        for waggle in self.unaudited.into_iter().chain(self.waggle) {
            waggle.stop().await;
        }
    }

    /// The target of the load for `subject` at `server`, and the id of the server's process.
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

    /// The gateway, if it is measured.
    pub(crate) fn waggle(&self) -> Option<&Waggle> {
        self.waggle.as_ref()
    }

    /// The database of `server`, if it has one.
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

/// Twice the expected duration of a run: a comparison server exits after it, even if the run was killed.
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
