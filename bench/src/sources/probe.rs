//! A client that reads at a fixed rate from a thread of its own, so that nothing else that the benchmark does is in what it
//! measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use crate::error::{Error, excerpt};
use crate::histogram::Histogram;
use crate::http::Connection;

/// Sends a request so many times a second over one connection, each once the one before is answered, until `stop` is set;
/// returns the latencies.
///
/// # Errors
/// If one was not answered 200.
pub(super) async fn latencies(
    port: u16,
    request: Vec<u8>,
    per_second: u32,
    stop: &Arc<AtomicBool>,
) -> Result<Histogram, Error> {
    let (stop, interval) = (Arc::clone(stop), Duration::from_secs(1) / per_second.max(1));
    spawn_blocking(move || send(port, &request, interval, &stop)).await?
}

/// A latency counts from the time at which the request was due if the one before was answered too late for it; otherwise
/// from when it was sent, so that how late the thread woke up does not count.
fn send(port: u16, request: &[u8], interval: Duration, stop: &AtomicBool) -> Result<Histogram, Error> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::io("start a client"))?;
    let mut connection = runtime.block_on(Connection::open(port))?;
    let mut latencies = Histogram::new();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let wait = due.saturating_duration_since(Instant::now());
        let from = if wait.is_zero() {
            due
        } else {
            thread::sleep(wait);
            Instant::now()
        };
        let answer = runtime.block_on(connection.exchange(request))?;
        if answer.status != 200 {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::Status { server: "waggle", case: "an inline read", status, body });
        }
        latencies.record(from.elapsed());
        due += interval;
    }
    Ok(latencies)
}
