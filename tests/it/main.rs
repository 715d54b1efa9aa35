//! Integration tests: the real router on a real socket, over a real PostgreSQL.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics, its helpers too")]
#![expect(
    clippy::pedantic,
    reason = "tables of cases are clearer without the changes that these lints require"
)]

mod admin;
mod apply;
mod architecture;
mod audit;
mod backups;
mod bad_input;
mod balancers;
mod cache_budget;
mod commands;
mod config;
mod connections;
mod container;
mod contexts;
mod database_errors;
mod demo;
mod doctor;
mod durability;
mod endpoint;
mod feed;
mod first_reads;
mod folders;
mod guides;
mod hardening;
mod keys;
mod labels;
mod large_agents;
mod lifecycle;
mod limits;
#[cfg(target_os = "linux")]
mod memory;
mod metrics_reference;
mod migrations;
mod monitoring;
mod mounts;
mod openapi;
mod operations;
mod plans;
mod pool;
mod privileges;
mod progress;
mod races;
mod replicas;
mod revisions;
mod rolling;
mod search;
mod sessions;
mod setting_files;
mod skew;
mod skills;
mod sourced;
mod staleness;
mod streams;
mod support;
mod sweeps;
mod tenancy;
mod timeline;
mod tokens;
mod tools;
mod traces;
mod usage;
mod writers;
