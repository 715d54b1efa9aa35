//! The gateway as its users meet it: the real router on a real socket, over a real PostgreSQL.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics, its helpers too")]

mod admin;
mod app;
mod architecture;
mod bad_input;
mod clock;
mod cluster;
mod config;
mod demo;
mod durability;
mod embedded;
mod endpoint;
mod http;
mod interference;
mod lifecycle;
mod process;
mod proxy;
mod races;
mod replicas;
mod whole;
mod writers;
