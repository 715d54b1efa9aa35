//! What is told of the endpoints in numbers.

use super::wire::{Incoming, Message, Rejected};

pub use super::results::ResultStats;
pub use super::streams::StreamStats;

/// What the endpoints hold and did so far, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointStats {
    /// Encoded results.
    pub results: ResultStats,
    /// Streams of both eras.
    pub streams: [StreamStats; 2],
}

/// The method of a message, as it is counted.
pub(super) fn method_of<'m>(incoming: &'m Result<Incoming<'_>, Rejected<'_>>) -> &'m str {
    match incoming {
        Ok(Incoming::Message(Message::Request(request))) => &request.method,
        Ok(Incoming::Batch(_)) => "batch",
        Ok(Incoming::Message(_)) | Err(_) => "other",
    }
}
