//! The server's transactions in progress.

use super::StoreError;
use super::changes::SweepConnection;

/// What the server reports about a transaction in progress. Members that the gateway's role may not see are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOwner {
    /// The process of its connection; none if it is prepared.
    pub pid: Option<i32>,
    /// Its database.
    pub database: Option<String>,
    /// Its role.
    pub role: Option<String>,
    /// The `application_name` of its connection, or the name under which it is prepared.
    pub application: Option<String>,
    /// The state of its connection, or `prepared`.
    pub state: Option<String>,
}

impl SweepConnection {
    /// Reads who has a transaction in progress; `None` if it ended, or the role may not see it.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn transaction_owner(&mut self, xid: u64) -> Result<Option<TransactionOwner>, StoreError> {
        let owner = sqlx::query_as!(
            TransactionOwner,
            r#"select pid as "pid?", datname::text as "database?", usename::text as "role?",
                application_name as "application?", state as "state?"
            from pg_stat_activity where backend_xid = $1::text::xid8::xid
            union all
            select null, database::text, owner::text, gid, 'prepared'
            from pg_prepared_xacts where transaction = $1::text::xid8::xid"#,
            xid.to_string(),
        )
        .fetch_optional(&mut self.connection)
        .await?;
        Ok(owner)
    }
}
