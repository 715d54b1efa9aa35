//! A closed loop of requests: each connection sends the next one when it has the answer to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cases::{Case, Era};
use crate::error::{Error, excerpt};
use crate::fixture::COUNTER;
use crate::histogram::Histogram;
use crate::http::{Answer, Connection};

/// How long a phase may wait for outstanding answers after its end.
const GRACE: Duration = Duration::from_secs(10);
/// One answer in this many is parsed and checked, and the first of each connection and phase.
const CHECKED_EVERY: u64 = 1024;

/// Numbers the requests that differ, over all servers and phases.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A request, with a new number each time if its case requires it.
struct Request {
    bytes: Vec<u8>,
    counters: Vec<usize>,
}

impl Request {
    fn new(bytes: &[u8], counted: bool) -> Self {
        let found = |(at, window): (usize, &[u8])| (window == COUNTER.as_bytes()).then_some(at);
        let counters = if counted {
            bytes.windows(COUNTER.len()).enumerate().filter_map(found).collect()
        } else {
            Vec::new()
        };
        Self { bytes: bytes.to_vec(), counters }
    }

    fn next(&mut self) -> &[u8] {
        if !self.counters.is_empty() {
            let number = format!("{:08}", NUMBER.fetch_add(1, Ordering::Relaxed) % 100_000_000);
            for at in &self.counters {
                self.bytes[*at..*at + COUNTER.len()].copy_from_slice(number.as_bytes());
            }
        }
        &self.bytes
    }
}

/// The target of the load: one case in one era at one server.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) server: &'static str,
    pub(crate) port: u16,
    pub(crate) case: &'static Case,
    pub(crate) era: Era,
    /// The agent key that is presented.
    pub(crate) key: &'a str,
}

impl Target<'_> {
    fn request(&self) -> Vec<u8> {
        self.case.request(self.era, self.port, self.key)
    }

    /// The body of one answer, checked.
    pub(crate) async fn sample(&self) -> Result<Vec<u8>, Error> {
        let one = async {
            let mut connection = Connection::open(self.port).await?;
            let answer = connection.exchange(&self.request()).await?;
            check(self.server, self.case, &answer, true)?;
            Ok(answer.body.to_vec())
        };
        let late = Error::TimedOut { server: self.server, seconds: GRACE.as_secs() };
        timeout(GRACE, one).await.unwrap_or(Err(late))
    }
}

/// Open connections to one target.
pub(crate) struct Load {
    server: &'static str,
    case: &'static Case,
    request: Arc<[u8]>,
    connections: Vec<Connection>,
}

/// The results of all connections in one phase.
pub(crate) struct Phase {
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Histogram,
}

impl Load {
    pub(crate) async fn open(target: Target<'_>, connections: usize) -> Result<Self, Error> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(target.port).await?);
        }
        Ok(Self {
            server: target.server,
            case: target.case,
            request: target.request().into(),
            connections: open,
        })
    }

    /// Keeps every connection busy for `duration`.
    pub(crate) async fn run(&mut self, duration: Duration) -> Result<Phase, Error> {
        let begin = Instant::now();
        let end = begin + duration;
        let mut tasks = JoinSet::new();
        for connection in self.connections.drain(..) {
            tasks.spawn(drive(connection, Arc::clone(&self.request), self.server, self.case, end));
        }
        let mut latencies = Histogram::new();
        let all = async {
            while let Some(done) = tasks.join_next().await {
                let (connection, seen) = done??;
                latencies.merge(&seen);
                self.connections.push(connection);
            }
            Ok(())
        };
        let deadline = duration + GRACE;
        let late = Error::TimedOut { server: self.server, seconds: deadline.as_secs() };
        timeout(deadline, all).await.unwrap_or(Err(late))?;
        Ok(Phase { elapsed: begin.elapsed(), latencies })
    }
}

async fn drive(
    mut connection: Connection,
    request: Arc<[u8]>,
    server: &'static str,
    case: &'static Case,
    end: Instant,
) -> Result<(Connection, Histogram), Error> {
    let mut latencies = Histogram::new();
    let mut request = Request::new(&request, case.counted);
    let mut sent = Instant::now();
    for number in 0_u64.. {
        if sent >= end {
            break;
        }
        let answer = connection.exchange(request.next()).await?;
        check(server, case, &answer, number % CHECKED_EVERY == 0)?;
        let now = Instant::now();
        latencies.record(now - sent);
        sent = now;
    }
    Ok((connection, latencies))
}

fn check(server: &'static str, case: &'static Case, answer: &Answer<'_>, look: bool) -> Result<(), Error> {
    if answer.status != 200 {
        let body = excerpt(answer.body);
        return Err(Error::Status { server, case: case.name, status: answer.status, body });
    }
    if look && !case.holds(answer.body) {
        let body = excerpt(answer.body);
        return Err(Error::Unexpected { server, case: case.name, expected: case.expected, body });
    }
    Ok(())
}
