//! The embedded database with real PostgreSQL servers: what it keeps, survives and refuses.

#![expect(clippy::unwrap_used, reason = "a failing test panics, its helpers too")]

mod crashes;
mod refusals;
mod starts;
mod support;
