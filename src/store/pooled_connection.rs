//! A connection of the pool, returned to it only in a known state.
//!
//! A future that is dropped during a statement leaves its connection waiting for the response, possibly forever if the
//! network drops packets. Such a connection is closed instead of being returned.

use std::sync::Arc;

use scopeguard::ScopeGuard;
use sqlx::{Executor, PgConnection};

use super::error::{is_connection_lost, is_connection_usable};
use super::warm_connections::{BorrowedConnection, WarmConnections};
use super::{Store, StoreError};
use crate::telemetry::trace::{self, Kind, SQL};

/// Begins a transaction of statements that are planned for their values each time. All others of the pool have one plan for
/// each connection, which knows no values: neither how many rows a limit admits, nor how few are newer than a bound.
macro_rules! begin_planned {
    ($begin:literal) => {
        concat!(
            $begin,
            "; set local plan_cache_mode = force_custom_plan; set local enable_seqscan to default"
        )
    };
}

pub(super) const BEGIN_PLANNED: &str = begin_planned!("begin");
pub(super) const BEGIN_PLANNED_READ_ONLY: &str = begin_planned!("begin read only");

/// A connection in use. Dropping it closes it, since its state is not known.
#[derive(Debug)]
pub(super) struct PooledConnection {
    borrowed: ScopeGuard<BorrowedConnection, fn(BorrowedConnection)>,
    warm: Arc<WarmConnections>,
}

impl PooledConnection {
    /// The connection, for statements.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.borrowed.connection
    }

    /// Executes the statement that ends the transaction, and returns the connection.
    pub(super) async fn end(mut self, end: &'static str) -> Result<(), StoreError> {
        self.connection().execute(end).await?;
        self.release();
        Ok(())
    }

    /// Returns the connection, which is outside of a transaction and waits for no response.
    fn release(self) {
        self.warm.release(ScopeGuard::into_inner(self.borrowed));
    }
}

impl Store {
    pub(super) async fn acquire(&self) -> Result<PooledConnection, StoreError> {
        let close: fn(BorrowedConnection) = |mut borrowed| borrowed.connection.close_on_drop();
        let borrowed = match self.warm.acquire().await {
            // Boxed, as the future of opening a connection there.
            Err(sqlx::Error::PoolTimedOut) => {
                return Err(Box::pin(self.acquisitions.time_out(&self.pool)).await);
            }
            acquired => acquired?,
        };
        let borrowed = scopeguard::guard(borrowed, close);
        Ok(PooledConnection { borrowed, warm: Arc::clone(&self.warm) })
    }

    /// Acquires a connection and starts a transaction with `begin`.
    ///
    /// A pooled connection that was lost while idle is detected here, before it is used, and the next one is
    /// tried, up to the size of the pool.
    pub(super) async fn transaction(&self, begin: &'static str) -> Result<PooledConnection, StoreError> {
        let mut others = self.pool.options().get_max_connections();
        loop {
            let mut pooled = self.acquire().await?;
            match pooled.connection().execute(begin).await {
                Ok(_) => return Ok(pooled),
                Err(error) if is_connection_lost(&error) && others > 0 => others -= 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Executes a single statement that only reads, as [`run_repeatable`](Self::run_repeatable).
    pub(super) async fn read<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error> + Clone,
    ) -> Result<T, StoreError> {
        self.run_repeatable(statement).await
    }

    /// Executes a single statement that has the same effect when it is executed again, and repeats it on the next
    /// connection if its connection was lost, up to the size of the pool.
    pub(super) async fn run_repeatable<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error> + Clone,
    ) -> Result<T, StoreError> {
        let mut others = self.pool.options().get_max_connections();
        loop {
            match self.run(statement.clone()).await {
                Err(error) if error.is_disconnected() && others > 0 => others -= 1,
                done => return done,
            }
        }
    }

    /// Executes a single statement that is planned for its values.
    pub(super) async fn run_planned<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut tx = self.transaction(BEGIN_PLANNED).await?;
        let answered = tokio::time::timeout(self.response_timeout, statement(tx.connection())).await;
        let done = answered.map_err(|_| StoreError::Timeout)??;
        tx.end("commit").await?;
        Ok(done)
    }

    /// Executes a single statement; the connection is closed if no response arrives in time.
    pub(super) async fn run<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let span = trace::leaf(SQL, Kind::Client);
        let mut pooled = self.acquire().await?;
        let answered = tokio::time::timeout(self.response_timeout, statement(pooled.connection())).await;
        let done = answered.map_err(|_| StoreError::Timeout)?;
        if done.as_ref().err().is_none_or(is_connection_usable) {
            pooled.release();
        }
        let done = done?;
        if let Some(span) = span {
            span.succeeded();
        }
        Ok(done)
    }
}
