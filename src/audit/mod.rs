//! The audit log: events are queued in memory, chained by their hashes, and written by one writer per process.
//!
//! [`AuditRecorder`] takes the events of every surface. The writer (`writer`) moves them, and the rows that
//! changes left in the outbox, into the log. While the database is unreachable or slow, it writes them to a
//! spill file (`spill`), which the next process adopts if this one terminates. Rows that the database rejects
//! are quarantined (`quarantine`). [`verify`] checks the hash chains, and `retention` drops expired partitions.
//!
//! A *chain* contains the rows of one process; the *ledger* is a chain of entries about all chains: when each
//! was opened and ended, and which rows are missing for a reason. Encodings are defined in `model::audit`.

mod aggregator;
mod backlog;
mod checkpoints;
mod error;
mod job;
mod metrics;
mod quarantine;
mod reads;
mod recorder;
mod retention;
mod spill;
mod start;
pub mod verify;
mod writer;

pub use error::AuditError;
pub use metrics::AuditStats;
pub use recorder::{AuditRecorder, Durability};
pub use start::{AuditOptions, RunningAudit, start};
