//! The gateway as its users meet it: the real router on a real socket, over a real PostgreSQL.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails panics, its helpers too")]
#![expect(
    clippy::pedantic,
    reason = "a table of cases is clearer in the words of the case than in the lint's"
)]

mod admin;
mod app;
mod apply;
mod architecture;
mod audit;
mod bad_input;
mod both;
mod clock;
mod cluster;
mod config;
mod container;
mod demo;
mod durability;
mod embedded;
mod endpoint;
mod events;
mod hardening;
mod http;
mod interference;
mod keys;
mod lifecycle;
mod limits;
mod loads;
#[cfg(target_os = "linux")]
mod memory;
mod openapi;
mod operations;
mod privileges;
mod process;
#[expect(dead_code, reason = "shared with the soak, which uses more of it")]
mod proxy;
mod races;
mod replicas;
mod sessions;
mod skew;
mod staleness;
mod streams;
mod tenancy;
mod timeline;
mod tokens;
mod usage;
mod whole;
mod writers;
