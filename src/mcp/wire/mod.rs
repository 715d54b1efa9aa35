//! JSON-RPC 2.0 as MCP uses it: zero-copy parsing of bodies, and encoding of answers.

pub mod incoming;
pub mod members;
pub mod parts;

#[cfg(test)]
mod tests;

pub use incoming::{
    Incoming, MAX_BATCH, Message, MethodName, Rejected, Request, message, parse, readable_id,
};
pub use parts::{
    BatchAnswers, Params, RequestId, RequestIdOwned, error_message, result_message, result_pieces,
};
