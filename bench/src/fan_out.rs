//! Many streams of one gateway: what each holds in memory, and how long it takes until all are told of a change.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::cases::Era;
use crate::cpu;
use crate::crowd::Crowd;
use crate::door::Door;
use crate::error::Error;
use crate::fleet::{START, lifetime, start_own};
use crate::memory;
use crate::options::{Options, Server};
use crate::process::Process;
use crate::report::median;
use crate::run::to_f64;
use crate::streams::Source;
use crate::trigger::Trigger;

/// Streams that are opened, told and closed before anything is measured.
const FIRST: usize = 50;
/// Changes that those are told of.
const FIRST_CHANGES: usize = 5;
/// Before memory is measured: what only opening takes has been given back by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Between changes, so that one is over before the next.
const PAUSE: Duration = Duration::from_millis(20);

/// A row of the report: streams of one kind at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) server: Server,
    /// The era in which they are opened, where the server knows eras.
    pub(crate) era: Option<Era>,
    pub(crate) streams: usize,
}

/// What one round found. Times are medians over its changes, in milliseconds from when a change was sent.
pub(crate) struct Sample {
    /// Of the server, a stream, idle.
    pub(crate) bytes: f64,
    /// Of the server, an event.
    pub(crate) server_micros: f64,
    /// Of this program, an event.
    pub(crate) client_micros: f64,
    pub(crate) answered: f64,
    pub(crate) first: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) last: f64,
    /// The last stream, from when the change was answered.
    pub(crate) last_after_answer: f64,
}

/// Measures one kind on a server that is started for it.
pub(crate) async fn measure(
    kind: Kind,
    source: Option<&Source<'_>>,
    options: &Options,
    dir: &Path,
) -> Result<Sample, Error> {
    let host = Host::start(kind, source, options, dir).await?;
    let measured = host.measure(kind.streams, options.duration()).await;
    host.process.stop().await;
    measured
}

/// A server to itself.
struct Host {
    process: Process,
    door: Door,
    authorization: Option<String>,
}

impl Host {
    async fn start(
        kind: Kind,
        source: Option<&Source<'_>>,
        options: &Options,
        dir: &Path,
    ) -> Result<Self, Error> {
        let Kind { server, era, .. } = kind;
        let missing = || Error::NotRunning { server: server.name() };
        let (process, key, authorization) = match server {
            Server::Waggle => {
                let source = source.ok_or_else(missing)?;
                let process = source.waggle.replica(&options.waggle_binary()?, dir).await?;
                (process, source.key.clone(), Some(source.authorization.clone()))
            }
            Server::Unaudited => return Err(missing()),
            Server::Limit => (own("serve-broadcast", server, options, dir).await?, String::new(), None),
            Server::Rmcp => (own("serve-rmcp-streams", server, options, dir).await?, String::new(), None),
        };
        let door = Door { server: server.name(), port: process.port, key, era };
        Ok(Self { process, door, authorization })
    }

    async fn measure(&self, streams: usize, duration: Duration) -> Result<Sample, Error> {
        let Door { server, port, .. } = self.door;
        let mut trigger = Trigger::open(server, port, self.authorization.clone()).await?;
        let mut few = Crowd::open(&self.door, FIRST).await?;
        for _ in 0..FIRST_CHANGES {
            change(&mut trigger, &mut few).await?;
        }
        drop(few);
        sleep(SETTLE).await;
        let before = memory::of_process(self.process.pid)?;
        let mut crowd = Crowd::open(&self.door, streams).await?;
        sleep(SETTLE).await;
        let bytes = memory::of_process(self.process.pid)?.saturating_sub(before);
        change(&mut trigger, &mut crowd).await?;
        let used = (cpu::of_process(self.process.pid)?, cpu::of_process(std::process::id())?);
        let changes = self.changes(&mut trigger, &mut crowd, duration).await?;
        let events = to_f64((changes.len() * streams) as u64);
        let micros = |pid, before| {
            Ok::<_, Error>(cpu::of_process(pid)?.saturating_sub(before).as_secs_f64() * 1e6 / events)
        };
        let of = |value: fn(&Change) -> f64| median(changes.iter().map(value).collect());
        Ok(Sample {
            bytes: to_f64(bytes) / to_f64(streams as u64),
            server_micros: micros(self.process.pid, used.0)?,
            client_micros: micros(std::process::id(), used.1)?,
            answered: of(|change| change.answered),
            first: of(|change| change.at(0)),
            p50: of(|change| change.at(500)),
            p99: of(|change| change.at(990)),
            last: of(|change| change.at(1000)),
            last_after_answer: of(|change| change.at(1000) - change.answered),
        })
    }

    /// As many changes as fit into `duration`, one after another.
    async fn changes(
        &self,
        trigger: &mut Trigger,
        crowd: &mut Crowd,
        duration: Duration,
    ) -> Result<Vec<Change>, Error> {
        let begin = Instant::now();
        let mut changes = Vec::new();
        while changes.is_empty() || begin.elapsed() < duration {
            sleep(PAUSE).await;
            changes.push(change(trigger, crowd).await?);
        }
        Ok(changes)
    }
}

async fn own(command: &str, server: Server, options: &Options, dir: &Path) -> Result<Process, Error> {
    let mut process = start_own(server, &[command.to_owned()], lifetime(options), dir)?;
    process.ready("/", false, START).await?;
    Ok(process)
}

/// One change, in milliseconds from when it was sent.
#[derive(Debug, PartialEq)]
struct Change {
    answered: f64,
    /// When each stream was told, in order.
    told: Vec<f64>,
}

impl Change {
    /// When `per_mille` of a thousand streams were told.
    fn at(&self, per_mille: usize) -> f64 {
        let number = (self.told.len() * per_mille).div_ceil(1000).max(1);
        self.told.get(number - 1).copied().unwrap_or(f64::NAN)
    }
}

async fn change(trigger: &mut Trigger, crowd: &mut Crowd) -> Result<Change, Error> {
    let ((sent, answered), told) = tokio::try_join!(trigger.pull(), crowd.all_told())?;
    let millis = |when: &Instant| (*when - sent).as_secs_f64() * 1e3;
    Ok(Change { answered: millis(&answered), told: told.iter().map(millis).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_when_that_many_streams_were_told() {
        let change = Change { answered: 0.0, told: (1..=500).map(f64::from).collect() };
        assert_eq!([0, 500, 990, 1000].map(|at| change.at(at).to_string()), ["1", "250", "495", "500"]);
        let alone = Change { answered: 0.0, told: vec![7.0] };
        assert_eq!([0, 500, 990, 1000].map(|at| alone.at(at).to_string()), ["7"; 4]);
    }
}
