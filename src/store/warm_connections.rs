//! Idle connections of the pool that are borrowed last in, first out (LIFO).
//!
//! sqlx's pool lends the connection that has been idle for longest, and makes a round trip when one is returned. Under light
//! load each statement then meets another backend of PostgreSQL, with cold caches. Here the connection that was used
//! last is used next, after a round trip if it was idle for longer than a caller waits for a connection. The pool opens
//! connections, bounds their number, and lends them in turn while some wait for one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgPool, Postgres};

/// A connection that is in use.
#[derive(Debug)]
pub(super) struct BorrowedConnection {
    pub(super) connection: PoolConnection<Postgres>,
    /// When it left the pool, which checks how old it is.
    left_pool: Instant,
}

/// The idle connections of a pool that were used last.
#[derive(Debug)]
pub(super) struct WarmConnections {
    pool: PgPool,
    state: Mutex<State>,
    /// Connections that were opened before are not used again.
    retired: Arc<Mutex<Option<Instant>>>,
}

#[derive(Debug, Default)]
struct State {
    /// With the time of its last use; the one used last at the end.
    idle: Vec<(BorrowedConnection, Instant)>,
    /// Number of callers that wait for the pool.
    waiting: usize,
}

/// A caller that waits for the pool.
struct Waiting<'a>(&'a Mutex<State>);

impl<'a> Waiting<'a> {
    fn new(state: &'a Mutex<State>) -> Self {
        state.lock().waiting += 1;
        Self(state)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl WarmConnections {
    /// Of a pool, which lends no connections from before `retired`.
    pub(super) fn new(pool: PgPool, retired: Arc<Mutex<Option<Instant>>>) -> Arc<Self> {
        Arc::new(Self { pool, state: Mutex::default(), retired })
    }

    /// Number of idle connections.
    pub(super) fn idle(&self) -> usize {
        self.state.lock().idle.len()
    }

    /// Lends the connection that was used last, or one of the pool.
    pub(super) async fn acquire(&self) -> Result<BorrowedConnection, sqlx::Error> {
        let most = self.pool.options().get_acquire_timeout();
        let (began, mut waiting) = (Instant::now(), self.take());
        if let Ok((borrowed, used)) = waiting {
            if !is_older(used, Some(most)) {
                return Ok(borrowed);
            }
            if let Some(borrowed) = self.checked(borrowed, used, most / 2).await {
                return Ok(borrowed);
            }
            waiting = Err(Waiting::new(&self.state));
        }
        // Before the pool checks that it is not retired.
        let left_pool = Instant::now();
        // Boxed: the future of opening a connection has 4 KiB, which those of all requests and streams would contain several
        // times.
        let left = most.saturating_sub(began.elapsed());
        let acquired = tokio::time::timeout(left, Box::pin(self.pool.acquire())).await;
        let connection = acquired.map_err(|_| sqlx::Error::PoolTimedOut)??;
        drop(waiting);
        Ok(BorrowedConnection { connection, left_pool })
    }

    /// The connection that was used last, and when; else a place among those that wait for the pool.
    fn take(&self) -> Result<(BorrowedConnection, Instant), Waiting<'_>> {
        let mut state = self.state.lock();
        if let Some((borrowed, used)) = state.idle.pop() {
            if !is_older(used, self.pool.options().get_idle_timeout()) {
                return Ok((borrowed, used));
            }
            // All others were used before it.
            for (mut unused, _) in state.idle.drain(..).chain([(borrowed, used)]) {
                unused.connection.close_on_drop();
            }
        }
        state.waiting += 1;
        Err(Waiting(&self.state))
    }

    /// The connection, if the server answers on it within `timeout`. A network that forgot an idle connection drops what is
    /// sent on it: a statement would wait for its whole timeout. Otherwise those that were idle for as long are closed as well.
    async fn checked(
        &self,
        borrowed: BorrowedConnection,
        used: Instant,
        timeout: Duration,
    ) -> Option<BorrowedConnection> {
        let mut borrowed = scopeguard::guard(borrowed, |mut borrowed| borrowed.connection.close_on_drop());
        if let Ok(Ok(())) = tokio::time::timeout(timeout, borrowed.connection.ping()).await {
            return Some(ScopeGuard::into_inner(borrowed));
        }
        let mut state = self.state.lock();
        let newer = state.idle.partition_point(|(_, other)| *other <= used);
        for (mut unused, _) in state.idle.drain(..newer) {
            unused.connection.close_on_drop();
        }
        None
    }

    /// Takes back a connection in a known state.
    pub(super) fn release(&self, mut borrowed: BorrowedConnection) {
        let options = self.pool.options();
        let mut state = self.state.lock();
        if self.retired.lock().is_some_and(|at| borrowed.left_pool <= at) {
            borrowed.connection.close_on_drop();
            return;
        }
        if state.waiting > 0
            || self.pool.is_closed()
            || is_older(borrowed.left_pool, options.get_max_lifetime())
        {
            return;
        }
        state.idle.push((borrowed, Instant::now()));
        while state.idle.first().is_some_and(|(_, used)| is_older(*used, options.get_idle_timeout())) {
            let (mut unused, _) = state.idle.remove(0);
            unused.connection.close_on_drop();
        }
    }

    /// Closes all connections that are open now instead of lending them again.
    pub(super) fn retire(&self) {
        let mut state = self.state.lock();
        *self.retired.lock() = Some(Instant::now());
        let borrowed = state.idle.drain(..).map(|(borrowed, _)| borrowed.connection);
        for mut connection in borrowed.chain(std::iter::from_fn(|| self.pool.try_acquire())) {
            connection.close_on_drop();
        }
    }

    /// Waits until all connections are returned and closed.
    pub(super) async fn close(&self) {
        let closing = self.pool.close();
        // Returned to the pool, which is closed.
        self.state.lock().idle.clear();
        closing.await;
    }
}

fn is_older(since: Instant, most: Option<Duration>) -> bool {
    most.is_some_and(|most| since.elapsed() > most)
}

impl Drop for WarmConnections {
    /// Without the runtime that returning them to the pool needs, which may have ended.
    fn drop(&mut self) {
        for (borrowed, _) in self.state.get_mut().idle.drain(..) {
            drop(borrowed.connection.detach());
        }
    }
}
