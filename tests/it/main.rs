//! The gateway as its users meet it: the real router on a real socket, over a real PostgreSQL.

mod app;
mod cluster;
mod http;
mod interference;
mod proxy;
mod races;
mod replicas;
mod writers;
