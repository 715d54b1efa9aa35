//! JSON-RPC 2.0 as MCP uses it: zero-copy parsing of bodies, and encoding of answers.

pub mod answers;
pub mod envelope;
pub mod members;

#[cfg(test)]
mod tests;

pub use answers::{BatchAnswers, error_message};
pub use envelope::{
    MAX_BATCH, Message, MessageBody, MethodName, Rejected, Request, RequestId, RequestIdOwned, message,
    parse, readable_id, result_message, result_pieces,
};
pub use members::Params;
