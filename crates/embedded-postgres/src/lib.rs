//! The life cycle of a private PostgreSQL server: found among the installed programs, initialized, started, restarted
//! when it crashes, and stopped with the process that owns it.
//!
//! For programs that should run without a configured database, and for tests. Nothing is downloaded. The server has
//! durable commits: everything that was committed before the process was killed remains after the next start.
//!
//! ```no_run
//! use embedded_postgres::{Embedded, EmbeddedOptions};
//! use sqlx::{ConnectOptions, Connection};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = EmbeddedOptions { path: std::env::var_os("PATH"), ..EmbeddedOptions::new("notes", "./data") };
//! let embedded = Embedded::start(options).await?;
//! let mut connection = embedded.connect_options().connect().await?;
//! let answer: i32 = sqlx::query_scalar("select 6 * 7").fetch_one(&mut connection).await?;
//! assert_eq!(answer, 42);
//! connection.close().await?;
//! embedded.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **Private.** There is no TCP port. The Unix socket is in a directory of mode 0700 with an unpredictable name, owned
//!   by the server's user. The server inherits nothing of the environment.
//! - **Ends with its owner.** The server runs under a *guardian*, a small shell script that holds one end of a pipe and
//!   shuts the server down when the owning process ends, even by `SIGKILL`.
//! - **Restarted.** A server that exits is started again, with growing delays, until [`Embedded::stop`].
//! - **One owner.** A lock on the data directory refuses a second process; a server of an earlier process that is still
//!   shutting down is waited for.
//! - **Never root.** If the owner runs as root, the server runs as the user `postgres`.
//!
//! # Data directory
//!
//! The cluster (`postgres/`), the server's log (`postgres.log`, truncated at 8 MiB), the lock (`embedded.lock`) and the
//! path of the socket's directory (`embedded.socket`). A cluster is created under another name and renamed once it is
//! complete.
//!
//! [`Embedded::dump`] and [`Embedded::restore`] copy the database to a file and back.
//!
//! # Requirements
//!
//! A Unix with `/bin/sh`; PostgreSQL 14 or newer, where the packages of common systems install it or on `PATH`.
//! [`Embedded::start`] blocks its thread for short file operations.

mod account;
mod cluster;
mod embedded;
mod error;
mod folder;
mod guardian;
mod installation;
mod log;
mod monitor;
mod options;
mod search;
mod server;
mod socket;
mod tools;

pub use self::embedded::{Embedded, check_programs};
pub use self::error::{EmbeddedError, ExitReason};
pub use self::installation::{Installation, Version};
pub use self::options::{EmbeddedLimits, EmbeddedOptions};
