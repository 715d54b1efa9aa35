//! Content from outside: connections to it, their secrets, and how they are kept in memory.
//!
//! [`Connections`] writes connections and hands out a [`Connection`] with its source by its UUID. They are one scope:
//! a change of one acts at once on every replica, by the cache rule ([`crate::cache`]). [`Fetcher`] fetches content from
//! them, within their limits, at most once at a time, and keeps it for as long as the definition allows.

mod cause;
mod circuit;
mod connections;
mod counters;
mod fetcher;
mod gate;
mod health;
mod hooks;
mod lease;
mod memory;
pub mod secrets;
mod webhook;
mod writes;

pub use connections::Connections;
pub use counters::{FetchStats, WatchEvent};
pub use fetcher::{ContentError, ContentRequest, FetchId, FetchOptions, Fetcher, Outside, Polled};
pub use health::{FailedFetch, Health, State};
pub use hooks::Delivery;
pub use lease::{Claim, Leases};
pub use memory::{Connection, ConnectionMemory};
pub use webhook::Signed;
pub use writes::{ConnectionChange, NewConnection, SecretChanges, TenantNames};
