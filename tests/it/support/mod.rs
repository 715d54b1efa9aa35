//! Helpers of the tests: gateways, clients, databases, clocks, faults and waiting.

pub(crate) mod answers;
pub(crate) mod app;
pub(crate) mod audit_site;
pub(crate) mod bucket;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod collector;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod flood;
pub(crate) mod folder;
pub(crate) mod frames;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod load_counter;
pub(crate) mod metric_families;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod repository;
pub(crate) mod signer;
pub(crate) mod statements;
pub(crate) mod tls;
pub(crate) mod wait;
pub(crate) mod webhook;
