//! Waggle, a multi-tenant MCP gateway.
//!
//! A hosted agent registers resources, resource templates, prompts, skills and mounts through the administration API; any
//! MCP client reads them at `/<agent_id>/mcp`. `ARCHITECTURE.md` describes the modules and the direction of imports: a module
//! imports only modules above it in this list.

// Futures of requests are nested deeply, and each is found to be `Send` through all of them.
#![recursion_limit = "256"]

pub mod model;

pub mod config;
pub mod telemetry;

pub mod store;

pub mod cache;

pub mod audit;
pub mod feed;

pub mod quota;
pub mod sources;

pub mod identity;

pub mod catalog;
pub mod sessions;

pub mod http;

pub mod admin;
pub mod mcp;

pub mod server;

pub mod app;

pub mod cli;
