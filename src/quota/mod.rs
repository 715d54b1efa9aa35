//! Limits on use: rates, requests in flight, upload memory ([`limits`]), and quotas and usage counters ([`usage`]).

pub mod limits;
mod quotas;
pub mod usage;
