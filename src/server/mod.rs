//! The server: sockets, TLS, connection limits and timeouts, the order of middleware, and dispatch to a surface.
//!
//! - [`listeners`](self::listeners) opens the sockets before the database is asked for anything; a [`Server`](listener::Server)
//!   accepts the connections of one listener within its [`ConnectionLimiter`](connection_limiter::ConnectionLimiter).
//! - A connection is served within its [`ConnectionDeadline`](deadline::ConnectionDeadline), after the handshake of
//!   [`tls`](self::tls) if there is one.
//! - [`GatewaySlot`](gateway_slot::GatewaySlot) answers health checks until the gateway is built; then
//!   [`Gateway`](gateway::Gateway) answers every request. Its `answer` is the middleware, from top to bottom.
//! - [`metrics`](self::metrics) collects `/metrics` from every module that counts.

mod connection;
mod connection_limiter;
mod deadline;
mod error;
pub(crate) mod gateway;
pub(crate) mod gateway_slot;
mod listener;
pub(crate) mod listeners;
pub(crate) mod metrics;
pub(crate) mod tls;

pub use error::ServerError;
pub use tls::TlsError;
