//! The MCP endpoint: two thin dialects, one for each era of the protocol, around one core.

pub mod accept;
pub mod call;
pub mod client;
mod contents;
mod converse;
mod costs;
pub mod counted;
mod definition;
pub mod endpoint;
pub mod era;
pub mod error;
#[cfg(test)]
mod fixtures;
pub mod headers;
pub mod legacy;
mod live;
pub mod modern;
mod notification;
mod open;
mod performer;
pub mod reply;
mod results;
mod server;
pub mod sse;
mod streams;
mod subject;
pub mod trail;
#[cfg(test)]
mod tests;
pub mod version;
pub mod wire;
