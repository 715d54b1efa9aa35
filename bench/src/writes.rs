//! Writes over the administration API: how many per second, compared with the same statements without a gateway, and
//! how long the writer of a quiet agent waits while many others write to another agent.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::closed_loop::End;
use crate::error::{Error, excerpt};
use crate::histogram::Histogram;
use crate::http::{self, Connection};
use crate::options::Options;
use crate::pgbench::Pgbench;
use crate::run::to_f64;
use crate::waggle::Waggle;

/// The statements of one write of the gateway, as a script of `pgbench`.
pub(crate) const SCRIPT: &str = include_str!("writes.sql");
/// Agents that are written to concurrently, each by one writer; `pgbench` has as many clients.
pub(crate) const WRITERS: usize = 32;
/// Writers of the busy agent.
pub(crate) const BUSY_WRITERS: usize = 1000;
/// The size of the contents that are written.
pub(crate) const BYTES: usize = 1024;

const BUSY: &str = "bench-busy";
const QUIET: &str = "bench-quiet";
/// The resource that every writer with its own agent writes to. The script of `pgbench` names it too.
const TARGET: &str = "bench://writes/target";
const WARM_UP: Duration = Duration::from_millis(500);
/// The delay until the busy writers are queued, before the quiet one is measured.
const RAMP_UP: Duration = Duration::from_secs(1);
/// The delay between two writes of the quiet agent.
const PAUSE: Duration = Duration::from_millis(2);
/// The delay before a writer that was refused tries again.
const REFUSED: Duration = Duration::from_millis(200);
/// How long a phase may wait for outstanding answers after its end.
const GRACE: Duration = Duration::from_secs(30);

/// The results.
pub(crate) struct Writes {
    /// Writes per second of the gateway and, if installed, of `pgbench`, by round.
    pub(crate) rates: Vec<(f64, Option<f64>)>,
    /// Writes per second with the audit outbox disabled, and with it, by round; empty without `pgbench`.
    pub(crate) outbox: Vec<(f64, f64)>,
    /// Of the gateway's writes.
    pub(crate) latencies: Histogram,
    /// Of the quiet agent's writes, without other writers.
    pub(crate) undisturbed: Histogram,
    /// Of the quiet agent's writes, beside the busy writers.
    pub(crate) under_load: Histogram,
    /// Writes per second of the busy writers, by round.
    pub(crate) busy: Vec<f64>,
}

/// Runs all measurements. The gateway must be otherwise idle.
pub(crate) async fn measure(waggle: &Waggle, options: &Options, dir: &Path) -> Result<Writes, Error> {
    let agents = (0..WRITERS).map(agent).chain([BUSY.to_owned(), QUIET.to_owned()]);
    let load = WriteLoad::register_fixture(waggle, agents.collect()).await?;
    let socket = fs::read_to_string(waggle.postgres.data_dir.join("embedded.socket"))
        .map_err(Error::io("find the socket of the gateway's database"))?;
    let database = [format!("--host={socket}"), "--username=waggle".to_owned(), "waggle".to_owned()];
    let pgbench = Pgbench::new(SCRIPT, database, dir).await?;
    let mut writes = Writes {
        rates: Vec::new(),
        outbox: Vec::new(),
        latencies: Histogram::new(),
        undisturbed: Histogram::new(),
        under_load: Histogram::new(),
        busy: Vec::new(),
    };
    let one_each = || (0..WRITERS).map(|n| (agent(n), TARGET.to_owned(), Duration::ZERO));
    load.write(one_each(), WARM_UP).await?;
    for _ in 0..options.rounds {
        let phase = load.write(one_each(), options.duration()).await?;
        let without = match &pgbench {
            Some(pgbench) => Some(pgbench.run(WRITERS, End::After(options.duration())).await?),
            None => None,
        };
        if let Some(pgbench) = &pgbench {
            pgbench.set_outbox_disabled(true).await?;
            let bare = load.write(one_each(), options.duration()).await;
            pgbench.set_outbox_disabled(false).await?;
            writes.outbox.push((bare?.per_second(), phase.per_second()));
        }
        writes.rates.push((phase.per_second(), without));
        writes.latencies.merge(&phase.latencies);
    }
    for _ in 0..options.rounds {
        writes.undisturbed.merge(&load.write_quiet_agent(options.duration()).await?.latencies);
        let busy = (0..BUSY_WRITERS).map(|n| (BUSY.to_owned(), format!("bench://busy/{n}"), Duration::ZERO));
        let (busy, under_load) = tokio::join!(load.write(busy, RAMP_UP + options.duration()), async {
            sleep(RAMP_UP).await;
            load.write_quiet_agent(options.duration()).await
        });
        writes.busy.push(busy?.per_second());
        writes.under_load.merge(&under_load?.latencies);
    }
    Ok(writes)
}

fn agent(number: usize) -> String {
    format!("bench-write-{number}")
}

/// A group of agents to write to, at one gateway.
pub(crate) struct WriteLoad {
    port: u16,
    authorization: Arc<str>,
    /// Numbers the contents: no two are equal.
    written: Arc<AtomicU64>,
}

/// The results of a group of writers in one phase.
pub(crate) struct Phase {
    elapsed: Duration,
    latencies: Histogram,
}

impl Phase {
    fn per_second(&self) -> f64 {
        to_f64(self.latencies.len()) / self.elapsed.as_secs_f64()
    }
}

impl WriteLoad {
    /// Creates the agents, with the resource that is written.
    pub(crate) async fn register_fixture(waggle: &Waggle, agents: Vec<String>) -> Result<Self, Error> {
        let mut admin = waggle.admin().await?;
        for agent in &agents {
            admin.create(agent).await?;
        }
        let authorization = admin.authorization.as_str().into();
        let load = Self { port: waggle.process.port, authorization, written: Arc::default() };
        load.write_each(&agents, WARM_UP).await?;
        Ok(load)
    }

    /// Keeps one writer of each agent busy for `duration`.
    pub(crate) async fn write_each(&self, agents: &[String], duration: Duration) -> Result<Phase, Error> {
        let writers = agents.iter().map(|agent| (agent.clone(), TARGET.to_owned(), Duration::ZERO));
        self.write(writers, duration).await
    }

    /// How many writes were started so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    async fn write_quiet_agent(&self, duration: Duration) -> Result<Phase, Error> {
        self.write([(QUIET.to_owned(), TARGET.to_owned(), PAUSE)], duration).await
    }

    /// Keeps writers busy for `duration`, each with its agent, its URI and its pause.
    async fn write(
        &self,
        writers: impl IntoIterator<Item = (String, String, Duration)>,
        duration: Duration,
    ) -> Result<Phase, Error> {
        let mut connected = Vec::new();
        for (agent, uri, pause) in writers {
            let uri = utf8_percent_encode(&uri, NON_ALPHANUMERIC);
            connected.push(Writer {
                connection: Connection::open(self.port).await?,
                target: format!("/admin/v1/agents/{agent}/resources?uri={uri}"),
                port: self.port,
                authorization: Arc::clone(&self.authorization),
                written: Arc::clone(&self.written),
                pause,
            });
        }
        let begin = Instant::now();
        let mut tasks = JoinSet::new();
        for writer in connected {
            tasks.spawn(writer.write_until(begin + duration));
        }
        let mut latencies = Histogram::new();
        let all = async {
            while let Some(done) = tasks.join_next().await {
                latencies.merge(&done??);
            }
            Ok(())
        };
        let late = Error::TimedOut { server: "waggle", seconds: (duration + GRACE).as_secs() };
        timeout(duration + GRACE, all).await.unwrap_or(Err(late))?;
        Ok(Phase { elapsed: begin.elapsed(), latencies })
    }
}

/// One writer of one resource.
struct Writer {
    connection: Connection,
    target: String,
    port: u16,
    authorization: Arc<str>,
    written: Arc<AtomicU64>,
    pause: Duration,
}

impl Writer {
    async fn write_until(mut self, end: Instant) -> Result<Histogram, Error> {
        let mut latencies = Histogram::new();
        while Instant::now() < end {
            let request = self.request();
            let sent = Instant::now();
            let answer = self.connection.exchange(&request).await?;
            match answer.status {
                200 | 201 => latencies.record(sent.elapsed()),
                503 => sleep(REFUSED).await,
                status => {
                    let body = excerpt(answer.body);
                    return Err(Error::AdminRefused { call: format!("PUT {}", self.target), status, body });
                }
            }
            if !self.pause.is_zero() {
                sleep(self.pause).await;
            }
        }
        Ok(latencies)
    }

    fn request(&self) -> Vec<u8> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let text = format!("{number:0BYTES$}");
        let body = json!({ "name": "target", "mimeType": "text/markdown", "contents": [{ "text": text }] });
        http::request("PUT", &self.target, self.port, &[("Authorization", &self.authorization)], Some(&body))
    }
}
