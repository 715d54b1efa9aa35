//! The embedded database with real PostgreSQL servers: what it keeps, survives and refuses.

mod crashes;
mod refusals;
mod starts;
mod support;
