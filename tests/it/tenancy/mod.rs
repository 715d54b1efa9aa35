//! Isolation of tenants.

mod attacks;
mod expected_state;
mod model;
mod probes;
