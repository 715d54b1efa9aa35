//! Why the listeners cannot be opened.

use std::net::SocketAddr;

use super::tls::TlsError;
use crate::model::system::RandomError;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The certificate or its key cannot be used.
    #[error("TLS cannot be configured: {0}")]
    Tls(#[from] TlsError),
    /// A listener cannot be opened.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// The system provides no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
