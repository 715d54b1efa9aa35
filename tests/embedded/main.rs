//! The embedded database, with real PostgreSQL servers: what it keeps, survives and refuses.

#![expect(clippy::unwrap_used, reason = "a test that fails panics, its helpers too")]

mod crashes;
mod refusals;
mod starts;
mod support;
