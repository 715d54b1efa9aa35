//! The gateway as its users meet it: the real router on a real socket, over a real PostgreSQL.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics, its helpers too")]

mod app;
mod architecture;
mod cluster;
mod config;
mod demo;
mod durability;
mod embedded;
mod http;
mod interference;
mod lifecycle;
mod process;
mod proxy;
mod races;
mod replicas;
mod tenancy;
mod writers;
