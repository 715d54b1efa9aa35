//! Limits on use: rates, requests in flight, upload memory ([`limits`]), and quotas and usage counters ([`usage`]).

pub mod limits;
mod period_limit;
mod quota_holder;
mod quota_meter;
mod quotas;
pub mod usage;

pub use quota_meter::QuotaLeft;
