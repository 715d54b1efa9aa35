//! Long-running tests of the built binary: delivery of changes, staleness and memory under load and faults.
//!
//! `SOAK=long` runs the long profile of each test.

#![expect(clippy::print_stdout, reason = "the measurements are the purpose of the tests")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics, its helpers too")]
#![expect(
    clippy::pedantic,
    reason = "a table of cases is clearer in the words of the case than in the lint's"
)]

mod client;
mod delivery;
mod expected;
mod faults;
mod fixture;
mod fleet;
mod http;
mod ledger;
mod legacy;
mod million;
mod modern;
mod postgres;
mod reader;
mod recurring_faults;
mod shares;
mod slow;
mod sse;
mod stopped;
#[path = "../it/support/mod.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod support;
mod writer;

use std::time::Duration;

use tokio::sync::Mutex;

/// Tests run one at a time, since each measures the whole machine.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

/// The size and duration of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// Streams of each era.
    streams: usize,
    writers: usize,
    /// How long writes and faults last.
    duration: Duration,
    /// How often a replica is killed.
    kill: Duration,
    /// How often all connections of the database are cut.
    cut: Duration,
}

const SHORT: Profile = Profile {
    streams: 60,
    writers: 20,
    duration: Duration::from_secs(12),
    kill: Duration::from_secs(3),
    cut: Duration::from_secs(3),
};
const LONG: Profile = Profile {
    streams: 200,
    writers: 20,
    duration: Duration::from_secs(60),
    kill: Duration::from_secs(10),
    cut: Duration::from_secs(7),
};

/// The selected profile.
fn profile() -> Profile {
    if is_long() { LONG } else { SHORT }
}

fn is_long() -> bool {
    std::env::var("SOAK").is_ok_and(|form| form == "long")
}
