//! The gateway as its users meet it: the real router on a real socket, over a real PostgreSQL.

mod admin;
mod app;
mod bad_input;
mod cluster;
mod durability;
mod endpoint;
mod http;
mod interference;
mod proxy;
mod races;
mod replicas;
mod tenancy;
mod writers;
