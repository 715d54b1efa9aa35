//! Prepared requests in turn over some connections, each of which sends the next one when it has its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::cpu;
use crate::error::{Error, excerpt};
use crate::http::Connection;
use crate::run::to_f64;
use crate::site::Site;

const CONNECTIONS: usize = 16;

/// When the requests end.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// After so many of each.
    Times(usize),
    /// After this time; they begin again until then.
    After(Duration),
}

/// What the requests took.
pub(crate) struct Cost {
    pub(crate) per_second: f64,
    /// CPU time of the gateway per request, in microseconds.
    pub(crate) gateway: f64,
    /// CPU time of PostgreSQL per request, in microseconds.
    pub(crate) postgres: f64,
}

/// The requests, and the length that each answer has at least.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) case: &'static str,
    pub(crate) bytes: Arc<[Vec<u8>]>,
    pub(crate) least: usize,
}

impl Requests {
    /// Sends them to the only gateway of a site.
    ///
    /// # Errors
    /// If an answer is not a success of the expected length.
    pub(crate) async fn send(&self, site: &Site, port: u16, end: End) -> Result<Cost, Error> {
        self.send_to(site.pid()?, site, port, end).await
    }

    /// Sends them to this process: a gateway of a site, or a bare handler beside it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) async fn send_to(&self, pid: u32, site: &Site, port: u16, end: End) -> Result<Cost, Error> {
        let postgres = site.postgres()?;
        let before = (cpu::of_process(pid)?, postgres.cpu());
        let began = Instant::now();
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            tasks.spawn(self.clone().drive(port, end, began, Arc::clone(&next)));
        }
        let mut answers = 0;
        while let Some(done) = tasks.join_next().await {
            answers += done??;
        }
        let elapsed = began.elapsed();
        if answers == 0 {
            return Err(Error::NothingMeasured { seconds: elapsed.as_secs() });
        }
        let each = |used: Duration| used.as_secs_f64() * 1e6 / to_f64(answers);
        Ok(Cost {
            per_second: to_f64(answers) / elapsed.as_secs_f64(),
            gateway: each(cpu::of_process(pid)?.saturating_sub(before.0)),
            postgres: each(postgres.cpu().saturating_sub(before.1)),
        })
    }

    async fn drive(self, port: u16, end: End, began: Instant, next: Arc<AtomicUsize>) -> Result<u64, Error> {
        let mut connection = Connection::open(port).await?;
        let mut answers = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let ended = match end {
                End::Times(times) => number >= self.bytes.len() * times,
                End::After(duration) => began.elapsed() >= duration,
            };
            let Some(request) = self.bytes.get(number % self.bytes.len()).filter(|_| !ended) else {
                return Ok(answers);
            };
            let answer = connection.exchange(request).await?;
            if answer.status != 200 || answer.body.len() < self.least {
                let (status, body) = (answer.status, excerpt(answer.body));
                return Err(Error::Status { server: "waggle", case: self.case, status, body });
            }
            answers += 1;
        }
    }
}
