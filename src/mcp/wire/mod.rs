//! JSON-RPC 2.0 as MCP uses it: zero-copy parsing of bodies, and encoding of answers.

pub mod incoming;
pub mod members;
pub mod outgoing;
pub mod params;
pub mod request_id;

pub use incoming::{
    Incoming, MAX_BATCH, Message, MethodName, Rejected, Request, message, parse, readable_id,
};
pub use outgoing::{batch_message, error_message, result_message, result_pieces};
pub use params::Params;
pub use request_id::{RequestId, RequestIdOwned};

#[cfg(test)]
mod tests;
