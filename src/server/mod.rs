//! The server: sockets, TLS, connection limits and timeouts, the order of middleware, and dispatch to a surface.
//!
//! - `listeners` opens the sockets before the first query of the database. A `listener::Server` accepts the connections
//!   of one listener within the limits of its `ConnectionLimiter`.
//! - `connection` serves a connection until its `ConnectionDeadline`, after the handshake of `tls` if there is one.
//!   An event stream of HTTP/1.1 continues without hyper as a `DetachedStream`.
//! - `GatewaySlot` answers health checks until the gateway is built. Then `Gateway::answer` answers every request: it lists
//!   the middleware in the order in which a request passes it.
//! - `routes` finds the part of the gateway that a path belongs to.
//! - `metrics` collects the counters of all modules for `/metrics`.

mod access_log;
mod compression;
mod connection;
mod connection_limiter;
mod deadline;
mod detachment;
mod error;
pub(crate) mod gateway;
pub(crate) mod gateway_slot;
mod health;
mod listener;
pub(crate) mod listeners;
pub(crate) mod metrics;
mod routes;
pub(crate) mod tls;
mod tracked_socket;
mod unanswered;

pub use error::ServerError;
pub use tls::TlsError;
