//! A connection on loan: given back only in a known state.
//!
//! A future that is dropped in the middle of a statement, for want of an answer most of all, leaves its connection
//! waiting. The pool would wait with it, for good where a network swallows packets; so such a connection is closed.

use sqlx::pool::PoolConnection;
use sqlx::{Executor, PgConnection, Postgres};

use super::{Store, StoreError};

/// A connection of the pool.
#[derive(Debug)]
pub(super) struct Lease {
    connection: PoolConnection<Postgres>,
    known: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.known {
            self.connection.close_on_drop();
        }
    }
}

impl Lease {
    /// The connection, in the middle of something until [`settle`](Self::settle).
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.known = false;
        &mut self.connection
    }

    /// Runs a statement that ends a transaction, after which the connection is as it was before.
    pub(super) async fn settle(mut self, end: &'static str) -> Result<(), StoreError> {
        self.connection().execute(end).await?;
        self.known = true;
        Ok(())
    }
}

/// Whether an error says that a connection is none any more, by itself or in the database's last words on it.
pub(super) fn is_cut(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(database) => database.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}

impl Store {
    pub(super) async fn lease(&self) -> Result<Lease, StoreError> {
        Ok(Lease { connection: self.pool.acquire().await?, known: true })
    }

    /// A lease in a transaction that `begin` begins.
    ///
    /// A connection that was cut while it lay in the pool is found out here, before anything was asked of it, and the
    /// next one is taken: there may be as many as the pool holds.
    pub(super) async fn transaction(&self, begin: &'static str) -> Result<Lease, StoreError> {
        let mut others = self.pool.options().get_max_connections();
        loop {
            let mut lease = self.lease().await?;
            match lease.connection().execute(begin).await {
                Ok(_) => return Ok(lease),
                Err(error) if is_cut(&error) && others > 0 => others -= 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Runs one statement on a connection of its own, which is closed where no answer comes.
    pub(super) async fn run<T>(
        &self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut lease = self.lease().await?;
        let answered = tokio::time::timeout(self.answers, statement(lease.connection())).await;
        let done = answered.map_err(|_| StoreError::Late)?;
        // An answer, a refusal included, leaves the connection as it was; a broken one the pool finds out itself.
        lease.known = matches!(&done, Ok(_) | Err(sqlx::Error::Database(_) | sqlx::Error::RowNotFound));
        Ok(done?)
    }
}
