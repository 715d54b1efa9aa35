//! Code that all HTTP surfaces share: credentials, rate limits, origins, request ids, bodies, cursors, problem documents.

pub mod body;
pub mod client_address;
pub mod context;
pub mod credential;
pub mod cursor;
pub mod intake;
pub mod media_type;
pub mod metadata;
pub mod operator_keys;
pub mod origin;
pub mod precondition;
pub mod problem;
pub mod query_limiter;
pub mod recorder;
pub mod refusals;
pub mod request_id;
pub mod request_trace;
pub mod tenant_meter;
