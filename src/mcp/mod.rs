//! The MCP endpoint: two thin dialects, one for each era of the protocol, around one core.
//!
//! `post` leads a request through its stages: authentication, admission, [`wire`] (JSON-RPC), the era ([`version`]), and the
//! dialect ([`modern`] or [`legacy`]), which decodes and answers it; `call_handler` answers the methods that both eras share, from encoded
//! results if they are cached. A [`request::McpRequest`] is passed through all stages.

mod argument_schema;
pub mod call;
mod call_handler;
mod contents;
mod definition;
pub mod endpoint;
pub mod error;
mod event_stream;
mod event_trace;
#[cfg(test)]
mod fixtures;
pub mod legacy;
pub mod modern;
mod notification;
mod open_stream;
mod pages;
mod post;
mod prompts;
mod refusal;
pub mod reply;
pub mod request;
mod result;
mod results;
mod server;
mod skill_entry;
mod skills;
pub mod sse;
mod stream_audit;
mod streams;
#[cfg(test)]
mod tests;
mod tools;
pub mod version;
pub mod wire;
