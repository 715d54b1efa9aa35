//! Isolation of tenants.

mod attacks;
mod model;
mod probes;
mod world;
