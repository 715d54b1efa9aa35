//! The database: all SQL, and the private PostgreSQL server of a gateway that is given none.

pub mod embedded;
