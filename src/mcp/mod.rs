//! The MCP endpoint: two thin dialects, one for each era of the protocol, around one core.

pub mod accept;
pub mod call;
pub mod client;
mod contents;
mod definition;
pub mod endpoint;
pub mod era;
pub mod error;
#[cfg(test)]
mod fixtures;
pub mod headers;
pub mod legacy;
pub mod modern;
mod performer;
mod results;
mod server;
mod subject;
pub mod version;
pub mod wire;
