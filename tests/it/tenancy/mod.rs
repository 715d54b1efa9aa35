//! Isolation of tenants.

mod attacks;
mod expected_state;
mod labels;
mod model;
mod probes;
