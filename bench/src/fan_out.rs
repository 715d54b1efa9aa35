//! Many streams of one server: the memory of each, and the time until all have received a change.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::time::sleep;

use crate::cases::Era;
use crate::cpu;
use crate::error::Error;
use crate::fixture::WATCHED;
use crate::fleet::{START, lifetime, start_own};
use crate::memory;
use crate::options::{Options, Server};
use crate::process::Process;
use crate::report::median;
use crate::run::to_f64;
use crate::stream_client::StreamClient;
use crate::streams::Source;
use crate::subscribers::Subscribers;
use crate::trigger::Trigger;
use crate::waggle::{Waggle, allow_passage};

/// Streams that are opened, used and closed before the measurement.
const FIRST: usize = 50;
/// The number of changes that those receive.
const FIRST_CHANGES: usize = 5;
/// The delay before memory is measured, in which what only opening needs is freed.
const SETTLE: Duration = Duration::from_secs(1);
/// The delay between changes, so that they do not overlap.
const PAUSE: Duration = Duration::from_millis(20);

/// A row of the report: a number of streams at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanOutCase {
    pub(crate) server: Server,
    /// The era of the streams, at a server that has eras.
    pub(crate) era: Option<Era>,
    pub(crate) streams: usize,
    /// Whether another replica has to acknowledge each change before it is sent.
    pub(crate) replicated: bool,
}

/// The results of one round. Times are medians over its changes, in milliseconds since the change was sent.
pub(crate) struct Sample {
    /// Memory of the server per idle stream.
    pub(crate) bytes: f64,
    /// CPU time of the server per event.
    pub(crate) server_micros: f64,
    /// CPU time of this program per event.
    pub(crate) client_micros: f64,
    pub(crate) answered: f64,
    pub(crate) first: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) last: f64,
    /// The time of the last stream, since the change was answered.
    pub(crate) last_after_answer: f64,
}

/// Measures one case on a server that is started for it.
pub(crate) async fn measure(
    kind: FanOutCase,
    source: Option<&Source<'_>>,
    options: &Options,
    dir: &Path,
) -> Result<Sample, Error> {
    // A gateway that is alone creates its database here.
    let dir = TempDir::new_in(dir).map_err(Error::io("create a directory"))?;
    allow_passage(dir.path())?;
    let host = DedicatedServer::start(kind, source, options, dir.path()).await?;
    let measured = host.measure(kind.streams, options.duration()).await;
    host.running.stop().await;
    measured
}

/// A server that serves one measurement only.
struct DedicatedServer {
    running: Running,
    client: StreamClient,
    authorization: Option<String>,
}

impl DedicatedServer {
    async fn start(
        kind: FanOutCase,
        source: Option<&Source<'_>>,
        options: &Options,
        dir: &Path,
    ) -> Result<Self, Error> {
        let FanOutCase { server, era, .. } = kind;
        let missing = || Error::NotRunning { server: server.name() };
        let (running, key, authorization) = match server {
            Server::Waggle if kind.replicated => {
                let source = source.ok_or_else(missing)?;
                let process = source.waggle.replica(&options.waggle_binary()?, dir).await?;
                (Running::Process(process), source.key.clone(), Some(source.authorization.clone()))
            }
            Server::Waggle => {
                let mut waggle = Waggle::start(&options.waggle_binary()?, dir, &[])?;
                waggle.ready().await?;
                let mut admin = waggle.admin().await?;
                admin.create_tenant().await?;
                let key = admin.register(WATCHED).await?;
                (Running::Gateway(waggle), key, Some(admin.authorization))
            }
            Server::Unaudited => return Err(missing()),
            Server::Limit => (own("serve-broadcast", server, options, dir).await?, String::new(), None),
            Server::Rmcp => (own("serve-rmcp-streams", server, options, dir).await?, String::new(), None),
        };
        let port = running.process().port;
        let client = StreamClient { server: server.name(), port, key, era };
        Ok(Self { running, client, authorization })
    }

    async fn measure(&self, streams: usize, duration: Duration) -> Result<Sample, Error> {
        let StreamClient { server, port, .. } = self.client;
        let pid = self.running.process().pid;
        let mut trigger = Trigger::open(server, port, self.authorization.clone()).await?;
        let mut few = Subscribers::open(&self.client, FIRST).await?;
        for _ in 0..FIRST_CHANGES {
            change(&mut trigger, &mut few).await?;
        }
        drop(few);
        sleep(SETTLE).await;
        let before = memory::of_process(pid)?;
        let mut subscribers = Subscribers::open(&self.client, streams).await?;
        sleep(SETTLE).await;
        let bytes = memory::of_process(pid)?.saturating_sub(before);
        change(&mut trigger, &mut subscribers).await?;
        let used = (cpu::of_process(pid)?, cpu::of_process(std::process::id())?);
        let changes = self.changes(&mut trigger, &mut subscribers, duration).await?;
        let events = to_f64((changes.len() * streams) as u64);
        let micros = |pid, before| {
            Ok::<_, Error>(cpu::of_process(pid)?.saturating_sub(before).as_secs_f64() * 1e6 / events)
        };
        let of = |value: fn(&Change) -> f64| median(changes.iter().map(value).collect());
        Ok(Sample {
            bytes: to_f64(bytes) / to_f64(streams as u64),
            server_micros: micros(pid, used.0)?,
            client_micros: micros(std::process::id(), used.1)?,
            answered: of(|change| change.answered),
            first: of(|change| change.at(0)),
            p50: of(|change| change.at(500)),
            p99: of(|change| change.at(990)),
            last: of(|change| change.at(1000)),
            last_after_answer: of(|change| change.at(1000) - change.answered),
        })
    }

    /// Makes changes one after another for `duration`.
    async fn changes(
        &self,
        trigger: &mut Trigger,
        subscribers: &mut Subscribers,
        duration: Duration,
    ) -> Result<Vec<Change>, Error> {
        let begin = Instant::now();
        let mut changes = Vec::new();
        while changes.is_empty() || begin.elapsed() < duration {
            sleep(PAUSE).await;
            changes.push(change(trigger, subscribers).await?);
        }
        Ok(changes)
    }
}

async fn own(command: &str, server: Server, options: &Options, dir: &Path) -> Result<Running, Error> {
    let mut process = start_own(server, &[command.to_owned()], lifetime(options), dir)?;
    process.ready("/", false, START).await?;
    Ok(Running::Process(process))
}

/// A process, or a gateway with its database.
enum Running {
    Process(Process),
    Gateway(Waggle),
}

impl Running {
    fn process(&self) -> &Process {
        match self {
            Self::Process(process) => process,
            Self::Gateway(waggle) => &waggle.process,
        }
    }

    async fn stop(self) {
        match self {
            Self::Process(process) => _ = process.stop().await,
            Self::Gateway(waggle) => waggle.stop().await,
        }
    }
}

/// One change, in milliseconds since it was sent.
#[derive(Debug, PartialEq)]
struct Change {
    answered: f64,
    /// When each stream received it, in order.
    received: Vec<f64>,
}

impl Change {
    /// When `per_mille` of a thousand streams had received it.
    fn at(&self, per_mille: usize) -> f64 {
        let number = (self.received.len() * per_mille).div_ceil(1000).max(1);
        self.received.get(number - 1).copied().unwrap_or(f64::NAN)
    }
}

async fn change(trigger: &mut Trigger, subscribers: &mut Subscribers) -> Result<Change, Error> {
    let ((sent, answered), received) = tokio::try_join!(trigger.fire(), subscribers.all_received())?;
    let millis = |when: &Instant| (*when - sent).as_secs_f64() * 1e3;
    Ok(Change { answered: millis(&answered), received: received.iter().map(millis).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_time_at_which_that_many_streams_received_it() {
        let change = Change { answered: 0.0, received: (1..=500).map(f64::from).collect() };
        assert_eq!([0, 500, 990, 1000].map(|at| change.at(at).to_string()), ["1", "250", "495", "500"]);
        let alone = Change { answered: 0.0, received: vec![7.0] };
        assert_eq!([0, 500, 990, 1000].map(|at| alone.at(at).to_string()), ["7"; 4]);
    }
}
