//! How much: rates, requests in progress, upload memory ([`limits`]), and the quotas and counters of what was used
//! ([`usage`]).

mod counters;
pub mod limits;
mod quotas;
pub mod usage;
