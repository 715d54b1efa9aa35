//! Requests on a fixed schedule to replicas behind a load balancer: each is sent at its time, whether or not earlier ones
//! are answered, to the replicas in turn that are ready, over a connection that is free; none is sent twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::{Error, excerpt};
use crate::histogram::Histogram;
use crate::http::{self, Connection};

/// How often `/readyz` is polled.
const POLL: Duration = Duration::from_millis(100);
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests in flight; above it, requests are late, which counts as latency.
const IN_FLIGHT: usize = 500;
/// Reasons of failures that are kept.
const REASONS: usize = 20;

/// The results of the requests that were due in one second.
pub(crate) struct Second {
    pub(crate) latencies: Histogram,
    pub(crate) failed: u64,
}

/// The results of all requests.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) seconds: Vec<Second>,
    /// Why requests failed, and how often.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// Where and how often requests are sent.
pub(crate) struct Schedule<'a> {
    pub(crate) ports: &'a [u16],
    pub(crate) per_second: u32,
    /// Whether `/readyz` decides who gets requests. Behind another load balancer it does not: clients always send.
    pub(crate) polled: bool,
}

/// A replica as the load balancer sees it.
struct Backend {
    port: u16,
    ready: Arc<AtomicBool>,
    idle: Vec<Connection>,
}

/// The end of a request.
struct Done {
    backend: usize,
    due: Instant,
    at: Instant,
    connection: Result<Connection, String>,
}

impl Schedule<'_> {
    /// Sends the requests that `request` makes for their number and port, until `stop` is set.
    pub(crate) async fn send(
        &self,
        stop: &AtomicBool,
        request: impl Fn(u64, u16) -> Vec<u8>,
    ) -> Result<Results, Error> {
        let mut polls = JoinSet::new();
        let mut backends: Vec<Backend> = self.ports.iter().map(|port| Backend::new(*port)).collect();
        for backend in &backends {
            if !self.polled {
                backend.ready.store(true, Ordering::Relaxed);
                continue;
            }
            polls.spawn(poll(backend.port, Arc::clone(&backend.ready)));
        }
        sleep(2 * POLL).await;
        let (mut tasks, mut results) = (JoinSet::new(), Results::default());
        let began = Instant::now();
        let mut number: u64 = 0;
        loop {
            let due =
                began + Duration::from_nanos(number * 1_000_000_000 / u64::from(self.per_second.max(1)));
            let stopped = stop.load(Ordering::Relaxed);
            if stopped && tasks.is_empty() {
                return Ok(results);
            }
            tokio::select! {
                biased;
                Some(done) = tasks.join_next() => results.add(done?, began, &mut backends),
                () = sleep_until(due), if !stopped && tasks.len() < IN_FLIGHT => {
                    match next(&mut backends, number) {
                        Some((backend, port, connection)) => {
                            let bytes = request(number, port);
                            tasks.spawn(exchange(backend, port, connection, bytes, due));
                        }
                        None => results.fail("no replica is ready".to_owned(), due - began),
                    }
                    number += 1;
                }
            }
        }
    }
}

impl Backend {
    fn new(port: u16) -> Self {
        Self { port, ready: Arc::default(), idle: Vec::new() }
    }
}

/// The ready replica whose turn it is, with a connection that is free.
fn next(backends: &mut [Backend], number: u64) -> Option<(usize, u16, Option<Connection>)> {
    let ready: Vec<usize> =
        (0..backends.len()).filter(|at| backends[*at].ready.load(Ordering::Relaxed)).collect();
    let turn = usize::try_from(number % (ready.len() as u64).max(1)).unwrap_or_default();
    let at = *ready.get(turn)?;
    let backend = backends.get_mut(at)?;
    // The replica may have closed a connection that was idle.
    let connection = std::iter::from_fn(|| backend.idle.pop()).find(Connection::is_open);
    Some((at, backend.port, connection))
}

async fn exchange(
    backend: usize,
    port: u16,
    connection: Option<Connection>,
    request: Vec<u8>,
    due: Instant,
) -> Done {
    let whole = async {
        let mut connection = match connection {
            Some(connection) => connection,
            None => Connection::open(port).await?,
        };
        let answer = connection.exchange(&request).await?;
        if answer.status != 200 {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::Status { server: "waggle", case: "a request", status, body });
        }
        Ok(connection)
    };
    let late = Error::TimedOut { server: "waggle", seconds: TIMEOUT.as_secs() };
    let connection = timeout(TIMEOUT, whole).await.unwrap_or(Err(late)).map_err(|error| error.to_string());
    Done { backend, due, at: Instant::now(), connection }
}

/// Keeps up to date whether a replica is ready.
async fn poll(port: u16, ready: Arc<AtomicBool>) {
    let request = http::request("GET", "/readyz", port, &[], None);
    loop {
        let status = async { Ok::<_, Error>(Connection::open(port).await?.exchange(&request).await?.status) };
        let answer = timeout(Duration::from_secs(1), status).await;
        ready.store(matches!(answer, Ok(Ok(200))), Ordering::Relaxed);
        sleep(POLL).await;
    }
}

impl Results {
    /// How many requests failed.
    pub(crate) fn failed(&self) -> u64 {
        self.seconds.iter().map(|second| second.failed).sum()
    }

    /// The latencies of all answers.
    pub(crate) fn latencies(&self) -> Histogram {
        let mut all = Histogram::new();
        self.seconds.iter().for_each(|second| all.merge(&second.latencies));
        all
    }

    fn add(&mut self, done: Done, began: Instant, backends: &mut [Backend]) {
        let due = done.due.duration_since(began);
        match done.connection {
            Ok(connection) => {
                self.second(due).latencies.record(done.at.saturating_duration_since(done.due));
                if let Some(backend) = backends.get_mut(done.backend) {
                    backend.idle.push(connection);
                }
            }
            Err(reason) => self.fail(reason, due),
        }
    }

    fn fail(&mut self, reason: String, due: Duration) {
        self.second(due).failed += 1;
        let reason = if self.reasons.len() < REASONS { reason } else { "other reasons".to_owned() };
        *self.reasons.entry(reason).or_insert(0) += 1;
    }

    fn second(&mut self, due: Duration) -> &mut Second {
        let at = usize::try_from(due.as_secs()).unwrap_or_default();
        while self.seconds.len() <= at {
            self.seconds.push(Second { latencies: Histogram::new(), failed: 0 });
        }
        &mut self.seconds[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_in_the_second_in_which_they_were_due() {
        let mut results = Results::default();
        for due in [200, 1_100, 1_900] {
            results.fail("refused".to_owned(), Duration::from_millis(due));
        }
        assert_eq!(results.seconds.iter().map(|second| second.failed).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((results.failed(), results.reasons.get("refused")), (3, Some(&3)));
    }

    #[test]
    fn replicas_that_are_not_ready_get_no_requests() {
        let mut backends = [1, 2, 3].map(Backend::new);
        assert!(next(&mut backends, 0).is_none());
        for at in [0, 2] {
            backends[at].ready.store(true, Ordering::Relaxed);
        }
        let ports = (0..4).map(|number| next(&mut backends, number).unwrap().1);
        assert_eq!(ports.collect::<Vec<_>>(), [1, 3, 1, 3]);
    }

    #[tokio::test]
    async fn answers_and_failures_of_a_schedule_are_counted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = |axum::extract::Path(path): axum::extract::Path<String>| async move {
            if path == "bad" { axum::http::StatusCode::BAD_GATEWAY } else { axum::http::StatusCode::OK }
        };
        let router = axum::Router::new().route("/{path}", axum::routing::get(answer));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let stop = AtomicBool::new(false);
        let schedule = Schedule { ports: &[port], per_second: 100, polled: true };
        let request = |number, port| {
            if number == 19 {
                stop.store(true, Ordering::Relaxed);
            }
            let path = if number % 4 == 0 { "/bad" } else { "/good" };
            http::request("GET", path, port, &[], None)
        };
        let results = schedule.send(&stop, request).await.unwrap();
        server.abort();
        assert_eq!((results.latencies().len(), results.failed()), (15, 5), "{:?}", results.reasons);
        assert!(results.latencies().quantile(500) < 1_000_000);
    }
}
