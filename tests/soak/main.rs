//! What streams promise, under load and while everything they stand on is taken away: the real binary, three times, on
//! a real PostgreSQL. And what very many strangers cost.
//!
//! `SOAK=long` runs the long form of each test.

#![expect(clippy::print_stdout, reason = "what it counted is what it is run for")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics, its helpers too")]
#![expect(
    clippy::pedantic,
    reason = "a table of cases is clearer in the words of the case than in the lint's"
)]

mod chaos;
mod client;
mod everything;
mod faults;
mod fleet;
mod http;
mod ledger;
mod legacy;
mod million;
mod modern;
mod postgres;
mod reader;
mod shares;
mod slow;
mod sse;
#[path = "../it/support/mod.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod support;
mod truth;
mod world;
mod writer;

use std::time::Duration;

use tokio::sync::Mutex;

/// One test at a time: each of them measures what the machine gives.
static ALONE: Mutex<()> = Mutex::const_new(());

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Streams of each era.
    streams: usize,
    writers: usize,
    /// For how long everything is written to and torn down.
    lasts: Duration,
    /// How often a replica is killed.
    kill: Duration,
    /// How often all connections of the database are cut.
    cut: Duration,
}

const SHORT: Form = Form {
    streams: 60,
    writers: 20,
    lasts: Duration::from_secs(12),
    kill: Duration::from_secs(3),
    cut: Duration::from_secs(3),
};
const LONG: Form = Form {
    streams: 200,
    writers: 20,
    lasts: Duration::from_secs(60),
    kill: Duration::from_secs(10),
    cut: Duration::from_secs(7),
};

/// The form that is asked for.
fn form() -> Form {
    if is_long() { LONG } else { SHORT }
}

fn is_long() -> bool {
    std::env::var("SOAK").is_ok_and(|form| form == "long")
}
