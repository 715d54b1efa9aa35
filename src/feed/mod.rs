//! The change feed: propagates committed changes between replicas.
//!
//! Notifications are hints; the `changes` table is authoritative. After a commit the writing replica sends a
//! message by `NOTIFY` (`notifier`), and every replica receives it by `LISTEN` (`listener`). A periodic
//! sweep (`sweep`) reads the changes whose messages were lost. The listener probes its connection, so that a
//! replica detects when it no longer receives messages (`health`).
//!
//! `hub` holds the event streams of this replica, and `replicas` determines which revisions all replicas have
//! acknowledged. What a replica costs while nothing changes does not depend on the others: nothing is sent.

mod catch_up;
mod follower;
mod health;
pub mod hub;
mod listener;
mod notifier;
mod open_transactions;
mod pending;
mod replicas;
mod service;
mod sweep;
mod sweeper;
mod timeline_check;

pub use health::{FeedHealth, FeedOptions};
pub use service::{Feed, FeedStats};
