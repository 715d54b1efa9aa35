//! Tests of the embedded database with real PostgreSQL servers: persistence, crashes and refusals.

#![expect(clippy::unwrap_used, reason = "a failing test panics, its helpers too")]

mod crashes;
mod dumps;
mod refusals;
mod starts;
mod support;
